"""A clock that a test moves by hand, so that no test ever waits for time to pass.

It stands in for `skep.runtime.clock.SystemClock` in one event loop. It never moves by
itself: a forgotten `advance` shows as a test that hangs, not as one that passes by luck.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

#: Turns of the event loop that `pass_time` gives to those it woke.
TURNS = 20


class ManualClock:
    """Time as the test says. Sleepers wake in the order of their due times."""

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
        """Return when the clock has been moved so far; at once (one turn) for 0."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        due = self._monotonic + seconds
        heapq.heappush(self._sleepers, (due, next(self._order), future))
        await future

    @property
    def sleepers(self) -> int:
        """How many wait for their time."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move on, and wake everyone whose time has come; they run when the test awaits."""
        if seconds < 0:
            raise ValueError("time does not go back; use `set_wall` to shift the wall clock")
        self._now += seconds
        self._monotonic += seconds
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            self._wake_first()

    async def pass_time(self, seconds: float) -> None:
        """Advance from one due time to the next, and let each sleeper act in between.

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
        """Shift `now()` alone, as when the machine's clock is set."""
        self._now = now

    def _wake_first(self) -> None:
        _, _, future = heapq.heappop(self._sleepers)
        if not future.done():
            future.set_result(None)


async def _give_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
