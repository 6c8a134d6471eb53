"""By whom: which agents are there, alive and allowed to take work. Centers only.

It chooses and explains; blocks are moved by `lanes` and by the store.
"""
