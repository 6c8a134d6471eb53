"""The folder for jobs, and which files in it a job may name. Centers, and `skep job lint`.

A user who may store a job may read the files there. The data folder of a center or an agent may
be below it (it is with `skep up`) and contains tokens and secrets: a job must never reach into
it. Pure, except that it resolves paths.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

#: A folder that contains one of these is the data folder of a center or an agent.
MARKS = frozenset({"admin.token", "agent.token", "center.lock"})
#: The content of a data folder that is also the folder for jobs.
_OWN = MARKS | {"secret.keys", "secrets", "agent", "archive", "apps", "items"}
_STORE = "skep.db"


def inside(folder: Path, name: Path | str) -> Path:
    """The resolved path of a name in the folder; raises ValueError for a path outside it or in a
    data folder."""
    root = folder.resolve()
    found = (root / name).resolve()
    if not found.is_relative_to(root):
        raise ValueError(f"{str(name)!r} is outside the folder for jobs")
    if _is_private(root, found):
        raise ValueError(f"{str(name)!r} is in the data folder of a center or an agent")
    return found


def is_data_folder(names: Collection[str]) -> bool:
    """Whether files with these names make a data folder."""
    return not MARKS.isdisjoint(names)


def _is_private(root: Path, found: Path) -> bool:
    below = [place for place in (found, *found.parents) if root in place.parents]
    if any((place / mark).exists() for place in below for mark in MARKS):
        return True
    if not any((root / mark).exists() for mark in MARKS):
        return False
    first = found.relative_to(root).parts[:1]
    return not first or first[0] in _OWN or first[0].startswith(_STORE)
