"""The least that the same work can cost: hand-written code without a product around it."""
