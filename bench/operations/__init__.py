"""Benches of bulk operations and live updates."""
