"""Drivers of other people's programs. Each file runs in the peer's own environment."""
