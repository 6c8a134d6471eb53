"""Expands the short forms of a pipeline document. Pure; it never changes the given document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def spelled_out(document: Any) -> Any:
    """`inputs: clicks` is a list of one part; `parse: csv` is a part with a kind."""
    if not isinstance(document, Mapping):
        return document
    full = dict(document)
    if "inputs" in full:
        full["inputs"] = _inputs(full["inputs"])
    if isinstance(full.get("parse"), str):
        full["parse"] = {"kind": full["parse"]}
    return full


def _inputs(given: Any) -> Any:
    if isinstance(given, str | Mapping):
        given = [given]
    if not isinstance(given, list | tuple):
        return given
    return [_input({"name": one} if isinstance(one, str) else one) for one in given]


def _input(part: Any) -> Any:
    if isinstance(part, Mapping) and isinstance(part.get("parse"), str):
        return {**part, "parse": {"kind": part["parse"]}}
    return part
