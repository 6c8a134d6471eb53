"""Agents that wait for work in a long poll: a line in the order in which they came.

Centers only. When work may be there, the lanes are asked once, and as many of the line are
woken as there are blocks for them: were all of them woken, a thousand would ask for one
block. Nobody is ever forgotten: who was woken and leaves without having looked passes the
call on, and when the lanes cannot be asked everybody looks for himself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from skep.errors import Unavailable
from skep.runtime.signals import within

log = logging.getLogger(__name__)

Targets = Callable[[], Iterable[str]]


class WaitingAgent:
    """One caller's place in the line, kept while it looks and waits by turns."""

    def __init__(self, room: LongPolls, targets: Targets) -> None:
        self._room = room
        #: Of the blocks that it may take now; asked for when there is something.
        self.targets = targets
        self._called = asyncio.Event()
        #: It was called and has not looked yet.
        self._looking = False

    @property
    def is_called(self) -> bool:
        """It will look, or looks already, because it was called."""
        return self._looking or self._called.is_set()

    def call(self) -> None:
        self._called.set()

    def look(self) -> None:
        """Before every look: a call that comes from now on means another one."""
        self._looking = self._called.is_set()
        self._called.clear()

    def looked(self) -> None:
        """Whatever was there then, was seen."""
        self._looking = False

    async def wait(self, seconds: float) -> None:
        """For a call, or until the time is over."""
        await within(self._called, seconds)

    def __enter__(self) -> Self:
        self._room.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._room.leave(self)


class LongPolls:
    """`there` tells how many blocks the lanes have for each target."""

    def __init__(self, there: Callable[[], Awaitable[Mapping[str, int]]]) -> None:
        self._there = there
        self._line: dict[WaitingAgent, None] = {}
        self._rang = False
        self._calling: asyncio.Task[None] | None = None

    def place(self, targets: Targets) -> WaitingAgent:
        """To be entered with `with`."""
        return WaitingAgent(self, targets)

    @property
    def waiting(self) -> int:
        """Callers in the line who have not been called."""
        return sum(not place.is_called for place in self._line)

    def enter(self, place: WaitingAgent) -> None:
        self._line[place] = None

    def leave(self, place: WaitingAgent) -> None:
        del self._line[place]
        if place.is_called:
            self.notify()

    def notify(self) -> None:
        """There may be something for somebody."""
        self._rang = True
        if self._line and (self._calling is None or self._calling.done()):
            self._calling = asyncio.create_task(self._go_through())

    def wake_all(self) -> None:
        """Everybody, whatever there is."""
        for place in self._line:
            place.call()

    async def _go_through(self) -> None:
        while self._rang and self._line:
            self._rang = False
            try:
                self._call(Counter(await self._there()))
            except Unavailable:
                self.wake_all()
            except Exception:
                log.exception("the lanes were not understood; everybody looks for himself")
                self.wake_all()

    def _call(self, blocks: Counter[str]) -> None:
        """One for each block. Those who are awake already take theirs, too."""
        for place in self._line:
            if not blocks:
                return
            target = next((one for one in place.targets() if blocks[one] > 0), None)
            if target is None:
                continue
            if not place.is_called:
                place.call()
            blocks[target] -= 1
            if not blocks[target]:
                del blocks[target]
