"""Positions in a log stream: `NUMBER-NUMBER`, which callers send back to continue reading.

Pure; every backend of the bus uses it, because a position comes from outside and must be
checked before it reaches the engine.
"""

from __future__ import annotations

import re

from skep.errors import InvalidInput

_SHAPE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?", re.ASCII)
_LARGEST = 2**64 - 1


def parse_position(text: str) -> tuple[int, int]:
    """`"0"` is the beginning; raises InvalidInput for a text that is not a position."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{text[:50]!r} is not a valid log position; send one that was returned before, or 0"
        )
    major, minor = int(match[1]), int(match[2] or 0)
    if max(major, minor) > _LARGEST:
        raise InvalidInput(f"position {text} is beyond the end of any log")
    return major, minor
