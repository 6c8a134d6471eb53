"""Generators of jobs: where their URIs come from, and the feed of a run. Centers only."""
