"""What goes into and comes out of `Keeping`: runs that ended, and what was deleted.

Pure data, for centers only.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: Archived bytes; attempts and histories of blocks; requests, blocks and items.
KeepKind = Literal["bodies", "logs", "rows"]
KINDS: tuple[KeepKind, ...] = ("bodies", "logs", "rows")


class EndedRun(msgspec.Struct, frozen=True):
    """A run that has ended, and what one kind of its records weighs."""

    no: int
    id: str
    job: str
    ended_at: float
    #: Bytes; of logs and rows an estimate.
    volume: int


class DeletionSum(msgspec.Struct, frozen=True):
    """Everything that was deleted of one kind."""

    kind: str
    runs: int
    #: Bytes of bodies, else rows.
    n: int
    last_at: float


class SegmentRow(msgspec.Struct, frozen=True):
    """An archive segment that is to be deleted."""

    name: str
    committed: int
    deleted_at: float
