"""Pages of the fleet: agents, lanes, hosts and placement. See `registry.py`."""
