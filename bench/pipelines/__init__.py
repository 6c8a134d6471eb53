"""Benchmarks of pipelines."""
