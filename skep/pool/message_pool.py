"""The message pool of a center: what it accepts, hands out and settles, within limits.

The rows are in the store; this module has the rules. A message that `keep` has accepted is on disk,
so that its input can be acknowledged. It must never answer before that.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.errors import InvalidInput, TooLarge, Unavailable
from skep.model.pipelines.pool import NewPooled, Pooled, PoolLedger, PoolState, Settled
from skep.runtime.clock import Clock
from skep.store.ports.pipelines.pool import Pool


class PoolLimits(msgspec.Struct, frozen=True):
    """The limits of the pool."""

    #: Messages of one call.
    call: int = 10_000
    #: Bytes of one message.
    body: int = 2**20
    #: Waiting and dead messages of one pipeline; when it is full the input waits.
    messages: int = 1_000_000
    #: Seconds that a claimed message is held.
    lease: float = 60.0
    #: Expired messages that one sweep makes dead.
    sweep: int = 1000


class MessagePool:
    """Stores, hands out and settles messages."""

    def __init__(self, rows: Pool, clock: Clock, limits: PoolLimits) -> None:
        self._rows = rows
        self._clock = clock
        self._limits = limits

    async def keep(self, pipeline: str, new: Sequence[NewPooled]) -> int:
        """Store messages; returns how many are new. Raises TooLarge or InvalidInput, and
        Unavailable when the pool of the pipeline is full; then nothing is stored."""
        self._check(new)
        if not new:
            return 0
        now = self._clock.now()
        if await self._rows.size(pipeline) + len(new) > self._limits.messages:
            told = f"the pool of {pipeline} is full ({self._limits.messages} messages)"
            raise Unavailable(f"{told}; release or discard dead messages")
        return await self._rows.put(pipeline, new, now)

    def _check(self, new: Sequence[NewPooled]) -> None:
        if len(new) > self._limits.call:
            raise TooLarge(f"{len(new)} messages; the limit of one call is {self._limits.call}")
        for one in new:
            if len(one.body) > self._limits.body:
                told = f"{len(one.body)} bytes; the limit is {self._limits.body}"
                raise TooLarge(f"the message {one.origin} has {told}")
            if not one.origin:
                raise InvalidInput("a message has no origin")

    async def take(self, pipeline: str, holder: str, size: int, share: float) -> list[Pooled]:
        """Claim due messages for a batch of `size`, at most `share` of it and at least one, so
        that retries neither starve fresh messages nor wait without end."""
        now = self._clock.now()
        limit = min(max(1, int(size * share)), self._limits.call)
        return await self._rows.claim(pipeline, holder, now, now + self._limits.lease, limit)

    async def settle(self, settled: Sequence[Settled]) -> list[int]:
        """Write what became of claimed messages; returns the ids that this holder had lost."""
        if len(settled) > self._limits.call:
            told = f"{len(settled)} messages; the limit of one call is {self._limits.call}"
            raise TooLarge(told)
        return await self._rows.settle(settled)

    async def release(self, holder: str) -> int:
        """Return what a stopped worker held; returns how many."""
        return await self._rows.release(holder)

    async def sweep(self) -> int:
        """Make expired messages dead; returns how many. The caller repeats it periodically."""
        return await self._rows.expire(self._clock.now(), self._limits.sweep)

    async def send_again(self, pipeline: str, ids: Sequence[int] | None) -> int:
        """Dead messages wait again, due now; None means all of the pipeline."""
        return await self._rows.send_again(pipeline, ids, self._clock.now())

    async def discard(self, pipeline: str, ids: Sequence[int] | None) -> int:
        """Delete messages; None means all of the pipeline."""
        return await self._rows.discard(pipeline, ids)

    async def page(
        self, pipeline: str, state: PoolState | None, after: int, limit: int
    ) -> list[Pooled]:
        """Messages by id, those over `after`."""
        return await self._rows.find(pipeline, state, after, min(limit, self._limits.call))

    async def ledger(self, pipeline: str = "") -> PoolLedger:
        """Counts; `unaccounted` is 0."""
        return await self._rows.ledger(pipeline)
