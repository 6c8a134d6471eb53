"""The store's contract for ended work. The rules of `store/ports` apply.

Run by centers only. Deleting is done in batches, and always counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.failures.dead_requests import (
    Act,
    Acted,
    DeadRequest,
    FailureFilter,
    FailureGroup,
    RequestFilter,
)
from skep.model.jobs.notice import Notice, RunEnding
from skep.model.people.scope import EVERYTHING, Scope
from skep.model.retention import DeletionSum, KeepKind
from skep.store.ports.requests import RequestView


class Failures(Protocol):
    """Dead requests, and requests by filter. Reading is cheap with a million of them. With a
    `scope` only requests of runs inside it exist."""

    async def groups(
        self, wanted: FailureFilter, limit: int, scope: Scope = EVERYTHING
    ) -> list[FailureGroup]:
        """The largest first. The groups of a run add up to its dead requests."""

    async def count(self, wanted: FailureFilter, scope: Scope = EVERYTHING) -> int:
        """Number of dead requests that match."""

    async def find(
        self, wanted: FailureFilter, after: int, limit: int, scope: Scope = EVERYTHING
    ) -> list[DeadRequest]:
        """In the order of their ids, those with ids over `after`."""

    async def act(self, act: Act, ids: Sequence[int], before: float) -> Acted:
        """Change those of `ids` that died before a time: `retry` makes them WAITING and resets
        their failures (not in cancelled runs), `cancel` makes them CANCELLED, `forget` deletes
        their rows (in ended runs only); the ledger keeps counting them."""

    async def requests(
        self, wanted: RequestFilter, after: int, limit: int, scope: Scope = EVERYTHING
    ) -> list[RequestView]:
        """In the order of their ids, those with ids over `after`."""

    async def count_requests(self, wanted: RequestFilter, scope: Scope = EVERYTHING) -> int:
        """Number of requests that match."""

    async def cancel(self, ids: Sequence[int], now: float) -> Acted:
        """Those that are open and not leased become CANCELLED."""


class RetentionStore(Protocol):
    """Deletes old records in small batches. Of ended runs only, and always counted."""

    async def ended(
        self, kind: KeepKind, before: float, after: tuple[float, int], limit: int
    ) -> list[EndedRun]:
        """Runs that ended before a time and still have records of that kind, the oldest first;
        those after (ended_at, no)."""

    async def volumes(self, kind: KeepKind) -> dict[str, int]:
        """Bytes that are kept, by job; of logs and rows an estimate."""

    async def forget(self, kind: KeepKind, run: int, now: float, limit: int) -> tuple[int, bool]:
        """Delete one batch: (how many were deleted, whether that was all). Deletes nothing, and
        returns that it was all, when the run has not ended or has open requests."""

    async def deleted(self) -> list[DeletionSum]:
        """What was deleted so far, by kind."""

    async def mark_segments(self, now: float, limit: int) -> list[str]:
        """Segments that no row refers to are marked as deleted: no later report can use them."""

    async def marked_segments(self, limit: int) -> list[SegmentRow]:
        """Segments that are marked as deleted and may still be in the archive."""

    async def segment_gone(self, name: str) -> None:
        """The file of the segment is deleted too."""


class Notices(Protocol):
    """The outbox. The end of a run becomes notices once; a notice is sent at least once."""

    async def endings(self, limit: int) -> list[RunEnding]:
        """Ends of runs that have no notices yet, oldest first."""

    async def post(self, ending: int, notices: Sequence[Notice]) -> bool:
        """Put the notices of an ending into the outbox; False when they are there already."""

    async def take(self, now: float, again_at: float, limit: int) -> list[Notice]:
        """Due notices, counted as attempted; no other caller gets them before `again_at`."""

    async def told(self, notice: str) -> None:
        """The recipient accepted it."""

    async def failed(self, notice: str, error: str, again_at: float | None) -> None:
        """Retry then; None = never, it is given up."""

    async def recent(self, limit: int, run: str = "") -> list[Notice]:
        """Newest first."""

    async def forget_told(self, before: float) -> int:
        """Delete notices that were sent or given up before a time."""


class EndedRun(msgspec.Struct, frozen=True):
    """A run that has ended, and the size of one kind of its records."""

    no: int
    id: str
    job: str
    ended_at: float
    #: Bytes; of logs and rows an estimate.
    volume: int


class SegmentRow(msgspec.Struct, frozen=True):
    """An archive segment that is to be deleted."""

    name: str
    committed: int
    deleted_at: float
