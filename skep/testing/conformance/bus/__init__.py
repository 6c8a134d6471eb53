"""Conformance tests for buses, and a model to compare with."""
