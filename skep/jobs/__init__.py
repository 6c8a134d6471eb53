"""What: requests and runs are checked here, and only what is valid is kept. Centers only.

It sees the ports of the borders, never a backend.
"""
