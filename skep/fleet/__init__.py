"""The agents as a center sees them, alive or not. Centers only.

It uses the ports of the store, and decides nothing about work: `placement` does.
"""
