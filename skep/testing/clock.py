"""A clock that a test moves, so that no test waits for time to pass.

It replaces `skep.runtime.clock.SystemClock` in one event loop. It never moves by itself: a
forgotten `advance` makes a test hang instead of pass by chance.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

#: Iterations of the event loop that `pass_time` gives to woken sleepers.
TURNS = 20


class ManualClock:
    """Time is set by the test. Sleepers wake in the order of their due times."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has moved by this time; for 0, after one loop iteration."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        due = self._monotonic + seconds
        heapq.heappush(self._sleepers, (due, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """Number of waiting sleepers."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move the clock and wake due sleepers; they run when the test awaits."""
        if seconds < 0:
            raise ValueError("cannot move time back; use `set_wall` to shift the wall clock")
        self._now += seconds
        self._monotonic += seconds
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            self._wake_first()

    async def pass_time(self, seconds: float) -> None:
        """Advance from one due time to the next, and let each sleeper run in between.

        A loop that sleeps one second runs ten times in `pass_time(10)`, but only once
        after `advance(10)`.
        """
        await _give_turns()
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance(max(0.0, self._sleepers[0][0] - self._monotonic))
            await _give_turns()
        self.advance(max(0.0, end - self._monotonic))
        await _give_turns()

    def set_wall(self, now: float) -> None:
        """Shift only `now()`, as when the machine's clock is set."""
        self._now = now

    def _wake_first(self) -> None:
        _, _, future = heapq.heappop(self._sleepers)
        if not future.done():
            future.set_result(None)


async def _give_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
