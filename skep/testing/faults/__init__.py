"""Faults for tests, in addition to the documented modules of `skep.testing`."""
