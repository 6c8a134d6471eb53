"""Benchmarks: Skep, a peer and the raw floor, alternately in one run. Not part of the wheel.

`python -m bench NAME` runs one and shows whether its bar holds. Every benchmark also checks its
work: it never prints a figure for incomplete work.
"""
