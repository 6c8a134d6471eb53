"""What the self-check of centers asks of a store; a part of `store/ports`, under its rules.

`find` reads, in bounded steps; `repair` asks again inside its transaction and changes only
what is still wrong, so a caller with an old view cannot do harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

#: holds: a host that is held by a block which has ended. allocations: open, of a run that is
#: over or not there. positions: a delivery that counts as done although items lie behind its
#: position, or whose position is behind every item of a run that goes on. tokens: of the driver
#: of a run that is over. segments: bytes counted for a run that is not there, which would keep
#: the segment from ever being deleted.
StoreCheck = Literal["holds", "allocations", "positions", "tokens", "segments"]


class CommittedSegment(NamedTuple):
    """An archive segment as the store knows it."""

    name: str
    #: How far rows may point into it.
    committed: int
    #: No row points into it any more; its file is, or will be, deleted.
    deleted: bool
    #: Its file was deleted.
    gone: bool


class Checks(Protocol):
    """Differences between tables that belong together."""

    async def find(self, kind: StoreCheck, after: str, limit: int) -> tuple[list[str], str]:
        """Names of differences in the next `limit` rows after a cursor ("" = begin), and the
        cursor for the next call ("" = that was all)."""

    async def segments(self, writer: str, after: str, limit: int) -> list[CommittedSegment]:
        """Archive segments whose names begin with that of a writer, behind a name ("" = begin)."""

    async def repair(self, kind: StoreCheck, names: Sequence[str], now: float) -> list[str]:
        """Repair those that are still different; returns them."""
