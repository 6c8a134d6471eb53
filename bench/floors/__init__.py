"""The minimum cost of the same work: hand-written code without a product."""
