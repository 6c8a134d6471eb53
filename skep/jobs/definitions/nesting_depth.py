"""How deep lists and mappings of a job document may be nested. Pure.

What reads, masks, compares and writes documents calls itself once per level; this bound is
checked first, without recursion, so that none of it meets the limit of the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Levels of lists and mappings, the document itself included.
DEPTH_LIMIT = 64
_PATH_SHOWN = 80


def too_deep(document: Any) -> str | None:
    """The path of the first part below the limit, its end cut off; None when there is none."""
    ahead: list[tuple[int, str, Any]] = [(1, "", document)]
    while ahead:
        level, path, part = ahead.pop()
        for name, below in _parts(part):
            if level >= DEPTH_LIMIT and isinstance(below, Mapping | list | tuple):
                return _cut(path)
            # Longer paths are not shown, and would take room with the square of the depth.
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
