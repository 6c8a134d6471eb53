"""A double of a run's queue, in memory, to test spiders with pages that a test writes.

`run_spider(MySpider(), {"http://site/": "<html>..."})` runs the real engine with it, with real
archived frames; no center, no agent, no network. A page may be text, bytes, or a `FakePage` with a
status, headers or a failure. It implements the contract `skep.spiders.ports.RunQueue`, and tests of
the engine can make its calls fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from skep.archive.frames import Exchange, FrameMaker
from skep.errors import StaleToken
from skep.model.ledger import Ledger
from skep.model.request import NewRequest
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.runtime.clock import Clock, SystemClock
from skep.runtime.signals import within
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.stats import Ending
from skep.spiders.ports import FoundItem, Page, PageBlock, Reading, Turn, TurnDone


@dataclass(frozen=True)
class FakePage:
    """The response of a URL. With a `failure` (network, timeout, status ...) it is dead."""

    body: str | bytes = ""
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"Content-Type": "text/html; charset=utf-8"}
    )
    failure: str = ""
    final_url: str = ""


Answer = str | bytes | FakePage
Site = Mapping[str, Answer] | Callable[[str], Answer | None]

MISSING = FakePage("<title>Not found</title>", 404, failure="status")


class MemoryQueue:
    """The queue of one run; `advance` does the work of an agent."""

    def __init__(
        self, site: Site, block_size: int = 10, clock: Clock | None = None, *, held: bool = False
    ) -> None:
        self.site = site
        self.block_size = block_size
        self.clock = clock or SystemClock()
        #: Downloads happen at the next read, or (held) only when a test calls `advance`.
        self.held = held
        self.run: Run | None = None
        self.items: dict[tuple[int, int], dict[str, Any]] = {}
        self.accepted: list[NewRequest] = []
        self.moves: list[str] = []
        self.turns: list[Turn] = []
        self.driver = 0
        #: Seconds that the driver may be silent.
        self.patience = 0.0
        #: Why the driver ended, as in the run.
        self.reason = ""
        #: A user's request to the driver's process.
        self.asked = ""
        #: Open requests that wait for a known time.
        self.resting = 0
        self.state = RunState.RUNNING
        self._token = 0
        self._fingerprints: set[tuple[str, str, bytes]] = set()
        self._waiting: list[int] = []
        self._finished: dict[int, PageBlock] = {}
        self._maker = FrameMaker(self.clock, Random(5))  # noqa: S311 - ids of a double
        self._signal = asyncio.Event()

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        self.patience = patience
        self.driver += 1
        self._token = self.driver
        if self.run is None:
            self.run = Run("double", job, self.state, settings, self.clock.now())
        return msgspec.structs.replace(self.run, state=self.state)

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        self._check()
        if not self.held:
            self.advance()
        blocks = self._untaken(limit, taken)
        waits = self._waiting and self.state is RunState.RUNNING and not self.asked
        if not blocks and wait and waits:
            self._signal.clear()
            await within(self._signal, wait)
            blocks = self._untaken(limit, taken)
        left = len(self._waiting)
        return Reading(blocks, left, self.state, min(left, self.resting), self.reason, self.asked)

    def _untaken(self, limit: int, taken: Sequence[int]) -> list[PageBlock]:
        free = [block for number, block in self._finished.items() if number not in taken]
        return free[:limit]

    async def checkpoint(self, turn: Turn) -> TurnDone:
        self._check()
        turn = msgspec.msgpack.decode(msgspec.msgpack.encode(turn), type=Turn)
        self.turns.append(turn)
        before = len(self.items)
        for item in turn.items:
            self._keep(item)
        new = sum(self._accept(request) for request in turn.requests)
        for block in turn.blocks:
            self._finished.pop(block, None)
        return TurnDone(new, len(turn.requests) - new, len(self.items) - before)

    def _keep(self, item: FoundItem) -> None:
        self.items.setdefault((item.request, item.n), item.data)

    def _accept(self, request: NewRequest) -> bool:
        own = request.fingerprint
        key = (own, "", b"") if own else (request.method, request.uri, request.body)
        if key in self._fingerprints and not request.again:
            return False
        self._fingerprints.add(key)
        self.accepted.append(request)
        self._waiting.append(len(self.accepted) - 1)
        return True

    def advance(self, requests: int | None = None) -> None:
        """Download waiting requests, at most `requests` of them."""
        if self.state is not RunState.RUNNING:
            return
        count = len(self._waiting) if requests is None else requests
        numbers, self._waiting = self._waiting[:count], self._waiting[count:]
        for start in range(0, len(numbers), self.block_size):
            part = numbers[start : start + self.block_size]
            # A block has the number of its first request: numbers are never reused.
            self._finished[part[0] + 1] = PageBlock(part[0] + 1, [self._page(n) for n in part])
        self._signal.set()

    def revive(self) -> None:
        """Retry all requests, as a user does with dead requests."""
        self.state = RunState.RUNNING
        self._waiting = list(range(len(self.accepted)))

    def _page(self, number: int) -> Page:
        request = self.accepted[number]
        answer = self._answer(request.uri)
        page = Page(
            number + 1,
            request.uri,
            "dead" if answer.failure else "done",
            answer.status,
            answer.failure,
            f"the server answered {answer.status}" if answer.failure else "",
            request.meta,
            answer.final_url,
            elapsed_us=1500,
        )
        if answer.status:
            page.frames = self._frames(request, answer)
        return page

    def _answer(self, url: str) -> FakePage:
        found = self.site(url) if callable(self.site) else self.site.get(url)
        if found is None:
            return MISSING
        return found if isinstance(found, FakePage) else FakePage(found)

    def _frames(self, request: NewRequest, answer: FakePage) -> bytes:
        body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        return self._maker.exchange_frames(
            Exchange(
                answer.final_url or request.uri,
                request.method,
                request_body=request.body,
                status=answer.status,
                reason="OK",
                response_headers=tuple(answer.headers.items()),
                body=body,
                address="127.0.0.1",
            )
        )

    async def end(self, verb: str, reason: str) -> None:
        self._check()
        self.reason = reason
        await self.move(verb)

    async def ledger(self) -> Ledger:
        total, waiting = len(self.accepted), len(self._waiting)
        return Ledger(accepted=total, waiting=waiting, done=total - waiting)

    async def move(self, verb: str) -> None:
        self.moves.append(verb)
        self.state = {
            "pause": RunState.PAUSED,
            "fail": RunState.FAILED,
            "continue": RunState.RUNNING,
            "finish": RunState.FINISHED,
            "cancel": RunState.CANCELLED,
        }[verb]
        self._signal.set()

    def take_over(self) -> None:
        """Another driver opens the run."""
        self.driver += 1

    def _check(self) -> None:
        if self._token != self.driver:
            raise StaleToken("the run has another driver now")


@dataclass(frozen=True)
class Tried:
    """The results of a spider."""

    items: list[dict[str, Any]]
    ending: Ending
    #: Every requested URL, in order.
    urls: list[str]


async def try_spider(spider: Spider, pages: Site) -> Tried:
    """Run a spider with your own pages, in the current event loop."""
    queue = MemoryQueue(pages)
    ending = await SpiderEngine(spider, queue, queue.clock).run()
    items = [queue.items[key] for key in sorted(queue.items)]
    return Tried(items, ending, [request.uri for request in queue.accepted])


def run_spider(spider: Spider, pages: Site) -> Tried:
    """The same without an event loop: `run_spider(Mine(), {url: html}).items`."""
    return asyncio.run(try_spider(spider, pages))
