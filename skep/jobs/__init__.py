"""Jobs, runs and requests: only valid ones are stored. Centers only.

It uses the ports of store, bus and archive, never a backend.
"""
