"""The API, one file per resource. Each exports its rows; the table is all of them together.

A row names its role. A path without a row is never answered.
"""
