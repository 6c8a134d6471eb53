"""The start of a spider, taken in small parts: it may be endless, and it may wait.

Runs in the spider's process. A plain generator is asked when there is room for more; an
`async` one runs in a task of its own, at most `AHEAD` results ahead, so that its waiting
blocks nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Iterator
from typing import Any

from skep.runtime.clock import Clock
from skep.spiders.authoring.callbacks import Caller, each, flat
from skep.spiders.authoring.spider import Spider

AHEAD = 1000
#: Seconds for which a plain generator may block the loop at a time.
TAKING_SECONDS = 0.5


class StartRequests:
    """`take` until it is `exhausted`."""

    def __init__(self, spider: Spider, caller: Caller, clock: Clock) -> None:
        self._spider = spider
        self._caller = caller
        self._clock = clock
        self._plain: Iterator[Any] | None = None
        self._ready: deque[Any] = deque()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opened = False
        self._ended = False
        #: Set when an `async` start has given something or has ended.
        self.news = asyncio.Event()

    @property
    def exhausted(self) -> bool:
        """Everything was taken, and `start` has ended."""
        return self._ended

    def take(self, limit: int) -> list[Any]:
        """At most `limit` results; raises what the spider's code raises, and TooSlow."""
        if not self._opened:
            self._open()
        if self._plain is None:
            return self._take_ready(limit)
        taken: list[Any] = []
        until = self._clock.monotonic() + TAKING_SECONDS
        while len(taken) < limit and not self._ended and self._clock.monotonic() < until:
            self._take_one(self._plain, taken)
        return taken

    def _open(self) -> None:
        self._opened = True
        with self._caller.limit():
            found = self._spider.start()
        if inspect.isasyncgen(found) or inspect.isawaitable(found):
            self._task = asyncio.create_task(self._pump(found))
        else:
            self._plain = found if isinstance(found, Iterator) else iter(flat(found))

    def _take_one(self, plain: Iterator[Any], taken: list[Any]) -> None:
        with self._caller.limit():
            try:
                taken += flat(next(plain))
            except StopIteration:
                self._ended = True

    def _take_ready(self, limit: int) -> list[Any]:
        self.news.clear()
        taken = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
        if len(self._ready) < AHEAD:
            self._room.set()
        if self._task is not None and self._task.done() and not taken:
            self._ended = True
            self._task.result()
        return taken

    async def _pump(self, found: Any) -> None:
        try:
            async for one in each(found):
                self._ready.extend(flat(one))
                self.news.set()
                while len(self._ready) >= AHEAD:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self.news.set()

    async def close(self) -> None:
        """Let the spider's code end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        elif inspect.isgenerator(self._plain):
            self._plain.close()
