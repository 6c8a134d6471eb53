"""Finds every expression and value of a pipeline document, with its path. Pure.

It reads the document as it was given, so that a mistake beside an expression does not hide one
inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Places of expressions; `*` stands for every entry of a list or field of a mapping.
CONDITIONS = (
    "filter",
    "trace.id",
    "trace.write_back.event_time",
    "trace.write_back.source_time",
    "extras.*.when",
    "operations.*.when",
    "operations.*.outputs.*.when",
)
#: Places of values, constants included.
VALUES = (
    "parse.common.*",
    "inputs.*.parse.common.*",
    "trace.lookups.*.key",
    "trace.record.key",
    "trace.write_back.key",
    "extras.*.args.map.*",
    "operations.*.outputs.*.key",
    "operations.*.outputs.*.values.*",
    "operations.*.outputs.*.fields.*.name",
    "operations.*.outputs.*.fields.*.value",
)


def conditions(document: Any) -> Iterator[tuple[str, str]]:
    """(path, text) of each expression that is not empty."""
    for place in CONDITIONS:
        found = _at(document, place.split("."), "")
        yield from ((path, text) for path, text in found if isinstance(text, str) and text)


def values(document: Any) -> Iterator[tuple[str, Any]]:
    """(path, value) of each value."""
    for place in VALUES:
        yield from _at(document, place.split("."), "")


def _at(part: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield path, part
        return
    first, *rest = steps
    for step, inner in _entries(part, first):
        yield from _at(inner, rest, f"{path}{step}".removeprefix("."))


def _entries(part: Any, step: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        names = list(part) if step == "*" else [step]
        yield from ((f".{name}", part[name]) for name in names if name in part)
    elif isinstance(part, list | tuple) and step == "*":
        yield from ((f"[{number}]", inner) for number, inner in enumerate(part))
