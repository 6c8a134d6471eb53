"""Who is there: agents as a center sees them, alive or not. Centers only.

It sees the ports of the store, and decides nothing about work: `placement` does.
"""
