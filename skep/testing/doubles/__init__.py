"""Doubles of centers and agents that a test controls: real HTTP, data in memory."""
