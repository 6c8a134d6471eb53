"""The folder for jobs: what of it a job may name. Used by centers, and by `skep job lint`.

Whoever may keep a job may read what lies there. The folder of a center's or an agent's own
data may be below it (it is with `skep up`), and holds tokens and secrets: a job never
reaches into it. Pure, but for looking where a path leads.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

#: A folder with one of these in it is the data folder of a center or an agent.
MARKS = frozenset({"admin.token", "agent.token", "center.lock"})
#: What such a folder holds, where it is the folder for jobs itself.
_OWN = MARKS | {"secrets", "agent", "archive", "apps", "items"}
_STORE = "skep.db"


def inside(folder: Path, name: Path | str) -> Path:
    """A place in the folder, links followed; raises ValueError for one that lies elsewhere, or
    that is a center's own."""
    root = folder.resolve()
    found = (root / name).resolve()
    if not found.is_relative_to(root):
        raise ValueError(f"{str(name)!r} lies outside the folder for jobs")
    if _is_private(root, found):
        raise ValueError(f"{str(name)!r} lies in the data folder of a center or an agent")
    return found


def is_data_folder(names: Collection[str]) -> bool:
    """By the names of the files in it."""
    return not MARKS.isdisjoint(names)


def _is_private(root: Path, found: Path) -> bool:
    below = [place for place in (found, *found.parents) if root in place.parents]
    if any((place / mark).exists() for place in below for mark in MARKS):
        return True
    if not any((root / mark).exists() for mark in MARKS):
        return False
    first = found.relative_to(root).parts[:1]
    return not first or first[0] in _OWN or first[0].startswith(_STORE)
