"""Measurements: ours, a peer and the raw floor, by turns in one run. Not part of the wheel.

`python -m bench NAME` runs one and says whether its bar holds. Whatever is measured is
also checked: a figure for work that was not done whole is never printed.
"""
