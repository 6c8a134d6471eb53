"""Runs of jobs: start, supervision, retries, delivery into sinks. Centers only."""
