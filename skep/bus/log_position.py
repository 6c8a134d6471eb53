"""Places in a log stream: `NUMBER-NUMBER`, as callers send them back to read on.

Pure; every backend of the bus uses it, because a position comes from outside and an
engine must never be asked about one that it cannot read.
"""

from __future__ import annotations

import re

from skep.errors import InvalidInput

_SHAPE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?", re.ASCII)
_LARGEST = 2**64 - 1


def parse_position(text: str) -> tuple[int, int]:
    """`"0"` is the beginning; raises InvalidInput for what no stream ever gave out."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{text[:50]!r} is not a position in a log; send one that was read, or 0"
        )
    major, minor = int(match[1]), int(match[2] or 0)
    if max(major, minor) > _LARGEST:
        raise InvalidInput(f"position {text} is beyond the end of any log")
    return major, minor
