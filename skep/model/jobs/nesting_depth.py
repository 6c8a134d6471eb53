"""Limits the nesting of lists and mappings in a job document. Pure.

The code that reads, masks, compares and writes documents recurses once per level. This limit is
checked first, without recursion, so that none of it reaches the recursion limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Maximum number of levels of lists and mappings, including the document.
DEPTH_LIMIT = 64
_PATH_SHOWN = 80


def too_deep(document: Any) -> str | None:
    """The path of the first part below the limit, shortened; None when there is none."""
    ahead: list[tuple[int, str, Any]] = [(1, "", document)]
    while ahead:
        level, path, part = ahead.pop()
        for name, below in _parts(part):
            if level >= DEPTH_LIMIT and isinstance(below, Mapping | list | tuple):
                return _cut(path)
            # Longer paths are not shown, and would need memory with the square of the depth.
            ahead.append((level + 1, _joined(path, name), below))
    return None


def _parts(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        yield from ((f".{name}", below) for name, below in part.items())
    elif isinstance(part, list | tuple):
        yield from ((f"[{number}]", below) for number, below in enumerate(part))


def _joined(path: str, name: str) -> str:
    return path if len(path) > _PATH_SHOWN else (path + name).removeprefix(".")


def _cut(path: str) -> str:
    return path if len(path) <= _PATH_SHOWN else f"{path[:_PATH_SHOWN]}..."
