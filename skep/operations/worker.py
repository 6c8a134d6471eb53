"""Processes bulk operations in batches, under a lease. Run by each center, in one loop.

Several centers share the operations; each has one holder at a time. Every write carries the lease,
so a center whose lease has expired changes nothing. It pauses after each batch, so that other work
continues, and never holds a whole set in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from skep.errors import InvalidInput, LostLease, SkepError, Unavailable
from skep.model.filter.checked import CheckedFilter
from skep.model.operations import Key, Operation, OperationState
from skep.operations.acts import Act, Batch, Registry, read_arguments
from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp
from skep.store.ports import Store

log = logging.getLogger(__name__)

#: Operations that one center works on at the same time.
HELD_LIMIT = 4
#: Keys that one step collects.
COLLECTED = 5000
#: Seconds between two checks for operations while there are none.
IDLE = 1.0
#: Seconds of pause for each second of work.
REST = 1.0
#: Unexpected errors after which an operation is given up.
TRIES = 5


class Worker:
    """One center's part in all operations."""

    def __init__(
        self,
        center: str,
        store: Store,
        registry: Registry,
        clock: Clock,
        lease_seconds: float,
        alive_after: float,
    ) -> None:
        self._center = center
        self._store = store
        self._registry = registry
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._alive_after = alive_after
        self._held: dict[int, Operation] = {}
        #: When the next batch of an operation may begin, by the monotonic clock.
        self._due: dict[int, float] = {}
        self._tries: dict[int, int] = {}
        self._renew_at = 0.0
        #: Set when an operation was added at this center.
        self.wake_up = WakeUp(clock)

    def wake(self) -> None:
        """An operation was added at this center: start it at once."""
        self._renew_at = 0.0
        self.wake_up.notify()

    async def step(self) -> float:
        """One batch of each operation that is due; returns the seconds until the next step."""
        if not self._held or self._clock.monotonic() >= self._renew_at:
            await self._claim()
        for number in list(self._held):
            if self._due.get(number, 0.0) <= self._clock.monotonic():
                await self._batch(self._held[number])
        if not self._held:
            return IDLE
        until = min(self._renew_at, *(self._due.get(number, 0.0) for number in self._held))
        return max(until - self._clock.monotonic(), 0.0)

    async def stop(self) -> None:
        """Let other centers have the operations at once."""
        held, self._held = self._held, {}
        if held:
            with suppress(SkepError):  # else their leases expire
                await self._store.operations.release(self._center)

    async def _claim(self) -> None:
        now, begun = self._clock.now(), self._clock.monotonic()
        until = now + self._lease_seconds
        found = await self._store.operations.claim(self._center, now, until, HELD_LIMIT)
        self._held = {one.id: one for one in found}
        self._due = {number: at for number, at in self._due.items() if number in self._held}
        self._tries = {number: n for number, n in self._tries.items() if number in self._held}
        self._renew_at = begun + self._lease_seconds / 3

    async def _batch(self, held: Operation) -> None:
        begun = self._clock.monotonic()
        try:
            after = await self._advance(held)
        except LostLease as error:
            log.info("%s", error.detail)
            self._held.pop(held.id, None)
            return
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a bug in an act must not stop the others
            after = await self._failed(held, error)
        self._keep(after)
        took = self._clock.monotonic() - begun
        pause = max(took * (1 + REST), (after.settled - held.settled) / self._rate(after))
        self._due[held.id] = begun + pause

    def _keep(self, after: Operation) -> None:
        if after.is_open:
            self._held[after.id] = after
        else:
            self._held.pop(after.id, None)
            log.info("operation %d is %s", after.id, after.state)

    def _rate(self, held: Operation) -> float:
        try:
            most = self._registry.act(held.asked.resource, held.asked.act).traits.rate
        except InvalidInput:
            return 1.0
        return float(min(held.asked.rate or most, most))

    async def _failed(self, held: Operation, error: Exception) -> Operation:
        """Retry; after some attempts, close the operation with the reason."""
        tries = self._tries[held.id] = self._tries.get(held.id, 0) + 1
        if isinstance(error, SkepError):
            detail = error.detail
        else:
            log.error("unexpected error in operation %d", held.id, exc_info=error)
            detail = f"unexpected error: {type(error).__name__}"
        if tries < TRIES and not isinstance(error, SkepError):
            return held
        return await self._end(held, OperationState.FAILED, detail)

    async def _end(self, held: Operation, state: OperationState, error: str = "") -> Operation:
        return await self._store.operations.end(held.proof, state, error, self._clock.now())

    async def _advance(self, held: Operation) -> Operation:
        asked = held.asked
        act = self._registry.act(asked.resource, asked.act)
        wanted = self._registry.resource(asked.resource).read(asked.filter, asked.moment)
        if held.state is not OperationState.WORKING:
            return await self._collect(held, act, wanted)
        part = await self._store.operations.part(held.proof)
        if part is None:
            return await self._end(held, OperationState.DONE)
        arguments = read_arguments(act.traits, asked.arguments)
        deadline = self._clock.monotonic() + self._lease_seconds / 3
        return await act.apply(Batch(held, part, wanted, arguments, deadline))

    async def _collect(self, held: Operation, act: Act, wanted: CheckedFilter) -> Operation:
        """Store the next part of the set."""
        targets = self._store.targets
        page = await targets.page(wanted, self._alive_after, held.position, held.bound, COLLECTED)
        limit = held.asked.confirmed
        if limit is not None and held.matched + len(page.keys) > limit:
            detail = f"more than the confirmed {limit} {held.asked.resource} match"
            return await self._end(held, OperationState.FAILED, f"{detail}; nothing was changed")
        # With a low rate, a part is what one second may change: a large one would be a burst.
        parts = _cut(page.keys, min(act.traits.batch, held.asked.rate or act.traits.batch))
        last = page.next is None
        position = held.position if page.next is None else page.next
        return await self._store.operations.collect(
            held.proof, parts, position, self._clock.now(), last=last
        )


def _cut(keys: Sequence[Key], size: int) -> list[Sequence[Key]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]
