"""Blocks in SQL: packed, leased, renewed, settled, taken back."""
