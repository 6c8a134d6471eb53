"""Conformance tests of inputs."""
