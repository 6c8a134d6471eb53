"""Blocks on an agent: leased, held, downloaded, reported."""
