"""The API, a file per resource. Each exports its rows; the table is their sum.

A row names its role, and nothing answers that has no row.
"""
