"""The side of agents: lines wait on disk until a center has stored them."""
