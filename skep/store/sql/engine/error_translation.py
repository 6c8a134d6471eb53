"""Translates an error of a database into a SkepError with the message of the engine.

Pure, used by every dialect. A full disk, a disk that cannot be written to and a damaged file
are three errors, because each needs another remedy.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import (
    DiskFailed,
    DiskFull,
    InvalidInput,
    SkepError,
    StoreDamaged,
    StoreDown,
)

#: The engines' codes for a full disk, a disk that cannot be written to, and damaged files.
FULL: frozenset[object] = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100", 1021, 1114})
UNWRITABLE: frozenset[object] = frozenset(
    {"SQLITE_READONLY", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "25006", 3, 28, 1036, 1290}
)
DAMAGED: frozenset[object] = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB", "XX001", "XX002", 1194})
_NO_SPACE = "No space left on device"


def explain(name: str, error: DBAPIError, code: object) -> SkepError | None:
    """The error as a SkepError; None when Skep's own SQL is wrong."""
    what = str(error.orig).strip().partition("\n")[0]
    if code in FULL or (code in UNWRITABLE and _NO_SPACE in what):
        return DiskFull(f"the {name} store cannot write: {what}; free some space")
    if code in UNWRITABLE:
        return DiskFailed(
            f"the {name} store cannot write: {what}; make its disk writable, or replace it"
        )
    if code in DAMAGED:
        return StoreDamaged(
            f"the {name} store is damaged: {what}; restore a backup (`skep restore`)"
        )
    if isinstance(error, sa.exc.DataError):
        return InvalidInput(f"the {name} store cannot store this value: {what}")
    if error.connection_invalidated or isinstance(error, sa.exc.OperationalError):
        return StoreDown(f"the {name} store does not answer: {what}")
    return None
