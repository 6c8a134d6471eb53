"""Checked filters as SQL conditions, and which index finds their rows. Centers only."""
