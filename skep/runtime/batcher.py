"""Combines calls that arrive at nearly the same time into one call.

For calls whose cost is in the call itself, such as a transaction. One call is under way at a
time; items that arrive meanwhile go into the next call. A single caller does not wait for
others. Runs on the event loop; it never answers before the call that holds the item has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """`act` takes the items of several callers and returns their answers in the same order.

    Two items with the same key are never in one call. `pause`: seconds from the start of one
    call to the start of the next. It is real time, not the time of a `Clock`: it limits the
    load and has no effect on results.
    """

    def __init__(
        self,
        act: Callable[[list[T]], Awaitable[Sequence[R]]],
        pause: float = 0.0,
        limit: int = 1000,
    ) -> None:
        self._act = act
        self._pause = pause
        self._limit = limit
        self._waiting: list[tuple[Hashable, T, asyncio.Future[R]]] = []
        self._task: asyncio.Task[None] | None = None
        self._began = -inf

    async def ask(self, key: Hashable, item: T) -> R:
        """Raises the error of the call, as for every other caller whose item is in it."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, item, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(max(0.0, self._began + self._pause - loop.time()))
            self._began = loop.time()
            batch = self._take()
            try:
                answers = await self._act([item for _, item, _ in batch])
            except BaseException as error:  # passed on to the callers
                for _, _, future in batch:
                    _fail(future, error)
                if not isinstance(error, Exception):
                    self._give_up(error)
                    raise
            else:
                for (_, _, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)

    def _take(self) -> list[tuple[Hashable, T, asyncio.Future[R]]]:
        """One item of each key, in order, without items whose caller has gone."""
        batch: dict[Hashable, tuple[Hashable, T, asyncio.Future[R]]] = {}
        rest = []
        for asked in self._waiting:
            if asked[2].done():
                continue
            if asked[0] in batch or len(batch) >= self._limit:
                rest.append(asked)
            else:
                batch[asked[0]] = asked
        self._waiting = rest
        return list(batch.values())

    def _give_up(self, error: BaseException) -> None:
        """The loop is ending: no caller may be left waiting."""
        for _, _, future in self._waiting:
            _fail(future, error)
        self._waiting = []


def _fail(future: asyncio.Future[R], error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(error)
