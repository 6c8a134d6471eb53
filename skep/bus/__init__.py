"""Lanes and signals: order and haste, never truth. Losing a bus loses nothing.

Only centers open one. Whatever is in it can be rebuilt from the store at any moment.
"""
