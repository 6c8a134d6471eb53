"""Inputs of pipelines: where messages come from."""
