"""Drivers of other programs. Each file runs in the peer's own environment."""
