"""The store's contract for the self-check of centers. The rules of `store/ports` apply.

`find` reads, in bounded steps; `repair` checks again inside its transaction and changes only
what is still wrong, so a caller with outdated data cannot do harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

#: holds: a host that is held by a block which has ended. allocations: open ones of a run that
#: has ended or does not exist. positions: a delivery that counts as done although items follow
#: its position, or whose position is past every item of a run that continues. tokens: of the
#: driver of a run that has ended. segments: bytes counted for a run that does not exist, which
#: would prevent the deletion of the segment. spans: ids of requests that the span of their run or
#: minute does not contain. failures: dead requests without their failure class. A center of an
#: earlier version leaves both during an upgrade, and lists would miss its requests.
StoreCheck = Literal["holds", "allocations", "positions", "tokens", "segments", "spans", "failures"]


class CommittedSegment(NamedTuple):
    """An archive segment as the store knows it."""

    name: str
    #: Offset up to which rows may refer to it.
    committed: int
    #: No row refers to it any more; its file is, or will be, deleted.
    deleted: bool
    #: Its file was deleted.
    gone: bool


class Checks(Protocol):
    """Differences between tables that belong together."""

    async def find(self, kind: StoreCheck, after: str, limit: int) -> tuple[list[str], str]:
        """Names of differences in the next `limit` rows after a cursor ("" = start), and the
        cursor for the next call ("" = the end)."""

    async def segments(self, writer: str, after: str, limit: int) -> list[CommittedSegment]:
        """Archive segments whose names start with that of a writer, after a name ("" = start)."""

    async def repair(self, kind: StoreCheck, names: Sequence[str], now: float) -> list[str]:
        """Repair those that are still different; returns them."""
