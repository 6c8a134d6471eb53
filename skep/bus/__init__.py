"""Lanes and signals: order and haste, never truth. Losing a bus loses nothing."""
