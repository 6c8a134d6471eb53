"""Virtual time and its events, and a way to run async rooms without an event loop.

No thread, no sleep, no clock of the machine: a seed always gives the same events.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH = 1_700_000_000.0


class World:
    """The clock and the queue of events. Implements `Clock`."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311 - a simulation must replay
        self.time = 0.0
        self.steps = 0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return EPOCH + self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a simulated room must not sleep ({seconds} s)")

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action; equal times run in the order of the calls."""
        heapq.heappush(self._events, (self.time + seconds, next(self._order), action))

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        if not self._events:
            return False
        self.time, _, action = heapq.heappop(self._events)
        self.steps += 1
        action()
        return True

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, to its end."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a simulated call waited; every call of a simulation must be synchronous")
