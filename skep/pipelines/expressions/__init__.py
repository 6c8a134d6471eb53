"""The expressions of pipelines: filters, conditions and values, compiled once to functions."""
