"""By whom: which agents are allowed to take work, and which of them does. Centers only.

It chooses and explains; blocks are moved by `lanes` and by the store.
"""
