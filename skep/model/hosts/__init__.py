"""Hosts and how they are treated. Pure data."""
