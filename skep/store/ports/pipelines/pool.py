"""The store's contract for the message pool. Used by `pool`.

Run by centers only. The rules of `store/ports` apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.pipelines.pool import NewPooled, Pooled, PoolLedger, PoolState, Settled


class Pool(Protocol):
    """One row for each message that failed, must wait, or is dead."""

    async def put(self, pipeline: str, new: Sequence[NewPooled], now: float) -> int:
        """Store messages; returns how many. An origin that is in the pool is not stored again."""

    async def claim(
        self, pipeline: str, holder: str, now: float, until: float, limit: int
    ) -> list[Pooled]:
        """Take waiting messages that are due, not expired and not held, the earliest due first.
        Each claim raises their token; after `until` another holder can take them."""

    async def settle(self, settled: Sequence[Settled]) -> list[int]:
        """Write what became of claimed messages; returns the ids whose token is not current: they
        were claimed by another holder, released by a person, or are gone. Those are not changed."""

    async def release(self, holder: str) -> int:
        """Make the claimed messages of a holder claimable at once; returns how many."""

    async def expire(self, now: float, limit: int) -> int:
        """Make expired waiting messages dead, unless they are held; returns how many."""

    async def find(
        self, pipeline: str, state: PoolState | None, after: int, limit: int
    ) -> list[Pooled]:
        """Messages with ids over `after`, by id; "" means every pipeline."""

    async def send_again(self, pipeline: str, ids: Sequence[int] | None, now: float) -> int:
        """Dead messages wait again, due now, without errors and expiry: these, or all with None.
        Returns how many."""

    async def discard(self, pipeline: str, ids: Sequence[int] | None) -> int:
        """Delete messages, waiting or dead: these, or all with None; returns how many."""

    async def size(self, pipeline: str) -> int:
        """Messages in the pool, waiting and dead; read from counts, so it costs the same for
        every size."""

    async def ledger(self, pipeline: str = "") -> PoolLedger:
        """Counts of one pipeline; "" means of all."""
