"""Lanes and signals: the order of blocks and wake-ups. Losing a bus loses no data.

Only centers open one. Everything in it can be rebuilt from the store at any time.
"""
