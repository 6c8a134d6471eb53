"""Generators of jobs: their sources, and the feed of a run. Centers only."""
