"""Conformance tests for archives."""
