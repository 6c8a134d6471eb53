"""What is asked of a store about work that ended; general promises stand in `store/ports`.

Run by centers only. Deleting is done in batches, and always counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skep.model.failures import Act, Acted, DeadRequest, FailureFilter, FailureGroup, RequestFilter
from skep.model.jobs.notice import Notice, RunEnding
from skep.model.retention import DeletionSum, KeepKind
from skep.store.ports.requests import RequestView


class Failures(Protocol):
    """Dead requests, and requests by filter. Reading is cheap with a million of them."""

    async def groups(self, wanted: FailureFilter, limit: int) -> list[FailureGroup]:
        """The largest first. The groups of a run add up to its dead requests."""

    async def count(self, wanted: FailureFilter) -> int:
        """How many dead requests fit."""

    async def find(self, wanted: FailureFilter, after: int, limit: int) -> list[DeadRequest]:
        """In the order of their ids, those with ids over `after`."""

    async def act(self, act: Act, ids: Sequence[int], before: float) -> Acted:
        """Those of `ids` that died before a moment: `retry` makes them WAITING with their
        failures forgiven (not in cancelled runs), `cancel` makes them CANCELLED, `forget`
        deletes their rows (in ended runs only); the ledger goes on counting them."""

    async def requests(self, wanted: RequestFilter, after: int, limit: int) -> list[RequestView]:
        """In the order of their ids, those with ids over `after`."""

    async def count_requests(self, wanted: RequestFilter) -> int:
        """How many requests fit."""

    async def cancel(self, ids: Sequence[int], now: float) -> Acted:
        """Those that are open and in nobody's hands become CANCELLED."""


class RetentionStore(Protocol):
    """Deleting what is old, in small batches. Of ended runs only, and never silently."""

    async def ended(
        self, kind: KeepKind, before: float, after: tuple[float, int], limit: int
    ) -> list[EndedRun]:
        """Runs that ended before a moment and still have something of that kind, the oldest
        first; those after (ended_at, no)."""

    async def volumes(self, kind: KeepKind) -> dict[str, int]:
        """Bytes that are kept, by job; of logs and rows an estimate."""

    async def forget(self, kind: KeepKind, run: int, now: float, limit: int) -> tuple[int, bool]:
        """One batch: (how many were deleted, whether that was all). Does nothing, and says
        it was all, when the run goes on or has open requests."""

    async def deleted(self) -> list[DeletionSum]:
        """What was deleted so far, by kind."""

    async def mark_segments(self, now: float, limit: int) -> list[str]:
        """Segments into which no row points become deleted: no later report can use them."""

    async def marked_segments(self, limit: int) -> list[SegmentRow]:
        """Segments that are deleted here and may still be in the archive."""

    async def segment_gone(self, name: str) -> None:
        """Its file is deleted, too."""


class Notices(Protocol):
    """The outbox. An ending becomes notices once; a notice is told at least once."""

    async def endings(self, limit: int) -> list[RunEnding]:
        """Ends of runs that nobody has seen to, oldest first."""

    async def post(self, ending: int, notices: Sequence[Notice]) -> bool:
        """Put an ending's notices into the outbox; False when somebody did so before."""

    async def take(self, now: float, again_at: float, limit: int) -> list[Notice]:
        """Notices that are due, counted as tried; nobody else gets them before `again_at`."""

    async def told(self, notice: str) -> None:
        """It was taken at the other end."""

    async def failed(self, notice: str, error: str, again_at: float | None) -> None:
        """Try again then; None = never, it is given up."""

    async def recent(self, limit: int, run: str = "") -> list[Notice]:
        """Newest first."""

    async def forget_told(self, before: float) -> int:
        """Delete what was told or given up before a moment."""


class EndedRun(msgspec.Struct, frozen=True):
    """A run that has ended, and what one kind of its records weighs."""

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
