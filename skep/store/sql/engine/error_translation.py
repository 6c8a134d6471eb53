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

_NO_SPACE = "No space left on device"


def explain(
    name: str, error: DBAPIError, *, full: bool, unwritable: bool, damaged: bool
) -> SkepError | None:
    """The error as a SkepError; None when Skep's own SQL is wrong. The dialect knows what its
    codes mean."""
    what = str(error.orig).strip().partition("\n")[0]
    if full or (unwritable and _NO_SPACE in what):
        return DiskFull(f"the {name} store cannot write: {what}; free some space")
    if unwritable:
        return DiskFailed(
            f"the {name} store cannot write: {what}; make its disk writable, or replace it"
        )
    if damaged:
        return StoreDamaged(
            f"the {name} store is damaged: {what}; restore a backup (`skep restore`)"
        )
    if isinstance(error, sa.exc.DataError):
        return InvalidInput(f"the {name} store cannot store this value: {what}")
    if error.connection_invalidated or isinstance(error, sa.exc.OperationalError):
        return StoreDown(f"the {name} store does not answer: {what}")
    return None
