"""State of a data folder: whether its restore is incomplete, and whether it is a copy.

A center writes its address to `center.url` and the identity of the folder to `center.place`. A
copy of the folder has both, and the address is that of the center of the original.
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
    """Identity of a folder: a moved folder keeps its inode, a copy has another path and inode."""

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
    """Record the identity of the folder: it no longer counts as a copy."""
    write_durably(folder / PLACE, msgspec.json.encode(_here(folder)) + b"\n")


def copied_from(folder: Path) -> str:
    """The folder that this one is a copy of; "" when it is not a copy, or that is unknown."""
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
    """Log a warning at the start of a center in a copied folder."""
    if original := copied_from(folder):
        log.warning(
            "%s is a copy of %s; it starts as a separate center. Do not let both use the same "
            "store, bus or archive.",
            folder,
            original,
        )


def _here(folder: Path) -> FolderPlace:
    return FolderPlace(str(folder.resolve()), folder.stat().st_ino)
