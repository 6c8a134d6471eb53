"""Nouns that cross a border: pure data, no await, no I/O. Every process uses them."""
