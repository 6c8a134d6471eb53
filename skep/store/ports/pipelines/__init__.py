"""The contracts of a store for pipelines."""
