"""The database: requests, blocks, runs, agents, tokens. Only centers open a store.

All other state can be rebuilt from the store; the store cannot be rebuilt.
"""
