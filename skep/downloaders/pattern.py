"""Patterns of runs, matched in linear time. Pure; used by agents and centers.

Python's regular expressions can run without end on a hostile page and block the whole process;
RE2 cannot. It has no look-around and no back-references; the error when the run is opened says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import re2  # type: ignore[import-untyped]  # the package ships no types

from skep.errors import InvalidInput

#: Bytes of a body that are searched.
LOOKED_AT = 1024 * 1024
_MEMORY = 8 * 2**20


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: bytes) -> object | None:
        """A match; None = no match."""


def compiled(pattern: str, whose: str) -> Pattern | None:
    """None for the empty pattern; raises InvalidInput, which names the setting."""
    if not pattern:
        return None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    try:
        found: Pattern = re2.compile(pattern.encode(), options)
    except (re2.error, ValueError) as error:
        raise InvalidInput(f"{whose} is not a valid pattern: {_said(error)}") from error
    return found


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def searched(status: int, reason: str, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """The text that patterns search: a status line, headers, an empty line, the body."""
    lines = [f"HTTP {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    head = "\n".join(lines).encode("latin-1", "replace")
    return head + b"\n\n" + body[:LOOKED_AT]
