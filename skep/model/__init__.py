"""Nouns that cross a border: pure data, no await, no I/O. Every process uses them.

What may become of what is a table here, and nowhere else.
"""
