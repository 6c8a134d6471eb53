"""By whom: which agents are there, alive and allowed to take work. Centers only."""
