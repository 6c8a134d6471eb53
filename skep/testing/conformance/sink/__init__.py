"""Conformance tests for sinks. A backend subclasses `SinkConformance`."""

from __future__ import annotations

from skep.testing.conformance.sink.suite import (
    KeyedSinkConformance,
    SinkConformance,
    SinkGround,
    pages,
    records,
)

__all__ = ["KeyedSinkConformance", "SinkConformance", "SinkGround", "pages", "records"]
