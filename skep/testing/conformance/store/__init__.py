"""Conformance tests for stores, one file per domain."""
