"""What retention deletes and has deleted: kinds of records and their sums.

Pure data, for centers and their callers. `jobs` decides what has expired.
"""

from __future__ import annotations

from typing import Literal

import msgspec

#: Archived bytes; attempts and histories of blocks; requests, blocks and items.
KeepKind = Literal["bodies", "logs", "rows"]
KINDS: tuple[KeepKind, ...] = ("bodies", "logs", "rows")


class DeletionSum(msgspec.Struct, frozen=True):
    """Everything that was deleted of one kind."""

    kind: str
    runs: int
    #: Bytes of bodies, else rows.
    n: int
    last_at: float


class Expired(msgspec.Struct, frozen=True):
    """Records of a run that are to be deleted, and why."""

    run: str
    job: str
    kind: KeepKind
    why: str
    ended_at: float
    #: Bytes; of logs and rows an estimate.
    volume: int
    no: int = 0


class Deleted(msgspec.Struct):
    """The result of one step."""

    runs: int = 0
    bodies: int = 0
    logs: int = 0
    rows: int = 0
    segments: int = 0
    segment_bytes: int = 0
