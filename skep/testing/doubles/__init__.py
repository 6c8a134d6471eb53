"""Doubles of centers and agents, played by hand: real HTTP, memory behind it."""
