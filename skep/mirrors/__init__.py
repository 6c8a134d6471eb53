"""Mirrors: git repositories that agents keep in sync with their upstreams.

This room decides when each repository is polled. It never starts git and never opens a connection:
`downloaders.git` does that.
"""
