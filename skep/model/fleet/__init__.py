"""Agents, tokens and placement. Pure data."""
