"""A real agent with a toy downloader, for tests of the agent without downloads.

The toy ends a request when the test decides: immediately, after a time, or on release.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random

from skep.agent.agent_folder import agent_id
from skep.agent.app import Agent
from skep.agent.machine_figures import describe
from skep.downloaders.ports import Fetched, Kind
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, Settings
from skep.testing.doubles.center import CenterDouble
from skep.wire.client import CenterClient

Done = Callable[[Fetched], None]
Start = Callable[..., AbstractAsyncContextManager[Agent]]


class ToyDownloader:
    """Ends downloads as its kind defines."""

    def __init__(self, kind: ToyKind) -> None:
        self._kind = kind
        self._running: dict[int, tuple[Work, Done]] = {}

    @property
    def active(self) -> int:
        return len(self._running)

    def start(self, work: Work, done: Done) -> None:
        self._running[work.id] = (work, done)
        self._kind.note_start(work, self.active)
        loop = asyncio.get_running_loop()
        if self._kind.seconds:
            loop.call_later(self._kind.seconds, self.end, work.id)
        elif not self._kind.holds(work):
            loop.call_soon(self.end, work.id)

    def end_all(self) -> None:
        """End all held requests."""
        for one in list(self._running):
            self.end(one)

    def end(self, one: int) -> None:
        """End this request successfully; no effect if it does not run here."""
        if found := self._running.pop(one, None):
            work, done = found
            done(Fetched(Outcome(work.id, status=200), self._kind.frames(work)))

    async def close(self) -> None:
        self._kind.closed += 1
        running, self._running = self._running, {}
        for work, done in running.values():
            done(Fetched(Outcome(work.id, failure=FailureClass.LOST)))


class ToyKind:
    """Opens toys. `held` names requests that end only after `let_go`."""

    name = "toy"
    schemes: tuple[str, ...] = ("toy",)

    def __init__(self, seconds: float = 0.0, size: int = 0) -> None:
        self.seconds = seconds
        self.size = size
        self.held: set[int] | None = set()
        self.started: list[int] = []
        self.most_active = 0
        self.opened: list[tuple[str, RunSettings]] = []
        self.closed = 0
        self._downloaders: list[ToyDownloader] = []

    def open(self, run: str, settings: RunSettings) -> ToyDownloader:
        self.opened.append((run, settings))
        self._downloaders.append(ToyDownloader(self))
        return self._downloaders[-1]

    @property
    def newest(self) -> ToyDownloader:
        """The last opened downloader."""
        return self._downloaders[-1]

    def note_start(self, work: Work, active: int) -> None:
        self.started.append(work.id)
        self.most_active = max(self.most_active, active)

    def holds(self, work: Work) -> bool:
        """`held = None` holds everything."""
        return self.held is None or work.id in self.held

    def let_go(self) -> None:
        """End all held requests, and hold none from now on."""
        self.held = set()
        for downloader in self._downloaders:
            downloader.end_all()

    def end(self, one: int) -> None:
        """End one held request."""
        for downloader in self._downloaders:
            downloader.end(one)

    def frames(self, work: Work) -> bytes:
        return work.uri.encode().ljust(self.size, b".") if self.size else b""


TOY_RUN = RunSettings(downloader="toy")


def toy_works(first: int, count: int) -> list[Work]:
    """Requests with consecutive ids from `first`."""
    return [Work(one, f"toy://x/{one}") for one in range(first, first + count)]


def fill(center: CenterDouble, blocks: int, size: int = 10) -> None:
    """Add blocks of run `r`, with requests numbered from 0."""
    for number in range(blocks):
        center.add("r", toy_works(number * size, size), TOY_RUN)


def build_agent(
    client: CenterClient, folder: Path, settings: AgentSettings, kinds: Mapping[str, Kind]
) -> Agent:
    """Build it as the command line does, with a seeded generator."""
    # By folder: two agents that start in the same millisecond must not get the same id.
    clock, rng = SystemClock(), Random(str(folder))  # noqa: S311 - a test repeats
    registration = describe(agent_id(folder, clock, rng), settings, tuple(kinds))
    return Agent(Settings(agent=settings), client, kinds, registration, clock, rng, folder)


@asynccontextmanager
async def running_agent(
    urls: list[str],
    token: str,
    folder: Path,
    kinds: Mapping[str, Kind],
    settings: AgentSettings,
) -> AsyncIterator[Agent]:
    """A running agent; drained at the end, and its error is raised."""
    rng = Random(7)  # noqa: S311  (seeded, so that a test repeats)
    async with CenterClient(urls, token, SystemClock(), rng) as client:
        agent = build_agent(client, folder, settings, kinds)
        task = asyncio.ensure_future(agent.run())
        try:
            yield agent
        finally:
            agent.stop()
            await task


def starter(center: CenterDouble, folder: Path, usual: AgentSettings) -> Start:
    """Starts agents of one folder for a center, with settings that a test may replace."""

    def begin(toy: ToyKind, settings: AgentSettings = usual) -> AbstractAsyncContextManager[Agent]:
        return running_agent([center.url], center.token, folder, {"toy": toy}, settings)

    return begin
