"""What a data folder says about itself: a restore that did not end, and whose copy it is.

A center leaves its address in `center.url` and the identity of the folder in `center.place`. In a
copy both are still there, and the address leads to the center of the original.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from skep.errors import ConfigurationError
from skep.runtime.files import read_or_none, write_durably

log = logging.getLogger(__name__)

#: While this file is in a data folder, its restore is not complete.
UNFINISHED = "restore.unfinished"
PLACE = "center.place"


class FolderPlace(msgspec.Struct, frozen=True):
    """A moved folder keeps its inode, a copied one has neither."""

    path: str
    inode: int


def check_finished(folder: Path) -> None:
    """Raises ConfigurationError for a folder whose restore was killed."""
    if (folder / UNFINISHED).exists():
        raise ConfigurationError(
            f"the restore into {folder} was interrupted; empty the folder (and the database) and "
            "restore again"
        )


def leave_place(folder: Path) -> None:
    """From now on this folder is not a copy."""
    write_durably(folder / PLACE, msgspec.json.encode(_here(folder)) + b"\n")


def copied_from(folder: Path) -> str:
    """The folder that this one is a copy of; "" when it is not, or nothing says so."""
    data = read_or_none(folder / PLACE)
    try:
        left = msgspec.json.decode(data, type=FolderPlace) if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    here = _here(folder)
    if left is None or left.path == here.path or left.inode == here.inode:
        return ""
    return left.path


def tell_copy(folder: Path) -> None:
    """At the start of a center in a copied folder."""
    if original := copied_from(folder):
        log.warning(
            "%s is a copy of %s; it starts as a center of its own. Do not let both use one store, "
            "bus or archive.",
            folder,
            original,
        )


def _here(folder: Path) -> FolderPlace:
    return FolderPlace(str(folder.resolve()), folder.stat().st_ino)
