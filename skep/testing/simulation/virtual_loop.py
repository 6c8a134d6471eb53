"""An event loop on virtual time: instead of waiting it moves its clock.

For simulations of rooms that wait and start tasks. It runs in one thread, waits for nothing outside
it, and must never be used with sockets or other threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from skep.testing.simulation.world import EPOCH


class _Jump(selectors.SelectSelector):
    """Never waits: it adds the timeout to the virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if found := super().select(0):
            return found
        if timeout is None:
            raise AssertionError("the simulation is stuck: no event is left")
        self.time += max(timeout, 0.0)
        return []


class _AtOnce(ThreadPoolExecutor):
    """Runs the work of other threads in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to the task that waits
            future.set_exception(error)
        return future


class VirtualLoop(asyncio.SelectorEventLoop):
    """`loop.time()` starts at 0 and advances when there is nothing to do."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self.set_default_executor(_AtOnce(1))

    def time(self) -> float:
        return self._jump.time


class LoopClock:
    """The clock of everything on a loop. Implements `Clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return EPOCH + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
