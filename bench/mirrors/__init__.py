"""Benchmarks of mirrors: when repositories are polled."""
