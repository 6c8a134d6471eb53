"""Runs of jobs: started, supervised, retried, delivered into sinks. Centers only."""
