"""Facts in SQL: requests, blocks, runs, agents, tokens. Only centers open a store.

Everything else about work can be rebuilt from it; it can be rebuilt from nothing.
"""
