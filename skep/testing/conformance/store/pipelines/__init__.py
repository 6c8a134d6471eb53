"""Conformance tests of stores for pipelines."""
