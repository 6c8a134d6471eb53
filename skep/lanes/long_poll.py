"""The queue of agents that wait for work in a long poll, in the order of their arrival.

Centers only. When there may be work, the lanes are asked once and as many waiting agents are
woken as there are blocks for them: if all were woken, a thousand agents would ask for one block.
No wake-up is lost: an agent that leaves without having looked passes its wake-up on, and when the
lanes cannot be asked all agents are woken.
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
    """The place of one caller in the queue, kept while the caller alternates between a look at the
    lanes and a wait."""

    def __init__(self, room: LongPolls, targets: Targets) -> None:
        self._room = room
        #: Returns the targets whose blocks it may take now; called when there may be work.
        self.targets = targets
        self._called = asyncio.Event()
        #: It was woken and has not looked at the lanes yet.
        self._looking = False

    @property
    def is_called(self) -> bool:
        """Whether it was woken and will look at the lanes, or is looking."""
        return self._looking or self._called.is_set()

    def call(self) -> None:
        self._called.set()

    def look(self) -> None:
        """Call this before every look: a wake-up after it requires another look."""
        self._looking = self._called.is_set()
        self._called.clear()

    def looked(self) -> None:
        """Call this after a look: the blocks of that moment were seen."""
        self._looking = False

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up, at most `seconds`."""
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
    """`there` returns the number of blocks in the lanes for each target."""

    def __init__(self, there: Callable[[], Awaitable[Mapping[str, int]]]) -> None:
        self._there = there
        self._line: dict[WaitingAgent, None] = {}
        self._rang = False
        self._calling: asyncio.Task[None] | None = None

    def place(self, targets: Targets) -> WaitingAgent:
        """A place in the queue; enter it with `with`."""
        return WaitingAgent(self, targets)

    @property
    def waiting(self) -> int:
        """Number of callers in the queue that were not woken."""
        return sum(not place.is_called for place in self._line)

    def enter(self, place: WaitingAgent) -> None:
        self._line[place] = None

    def leave(self, place: WaitingAgent) -> None:
        del self._line[place]
        if place.is_called:
            self.notify()

    def notify(self) -> None:
        """There may be work: wake as many agents as there are blocks for."""
        self._rang = True
        if self._line and (self._calling is None or self._calling.done()):
            self._calling = asyncio.create_task(self._go_through())

    def wake_all(self) -> None:
        """Wake all agents in the queue, without a look at the lanes."""
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
                log.exception(
                    "unexpected error while counting blocks in the lanes; waking all agents"
                )
                self.wake_all()

    def _call(self, blocks: Counter[str]) -> None:
        """Wake one agent for each block. Agents that are awake already count for theirs."""
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
