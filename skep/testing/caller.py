"""A client that insists, and remembers what it was promised. Runs in a test.

It makes a call again until it is answered, and writes every URL that a center acknowledged
to a synced file of its own: what a center says later is held against that file.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from skep.errors import SkepError
from skep.model.agent import AgentView, Vitals
from skep.model.ledger import Ledger
from skep.runtime.clock import SystemClock
from skep.wire.client import CenterClient

T = TypeVar("T")
RUN = "web"
#: Seconds between two tries.
STEP = 0.03
#: A call is given up after so long.
PATIENCE = 30.0


class _LedgerAnswer(msgspec.Struct):
    ledger: Ledger
    unaccounted: int


class _AgentLine(msgspec.Struct):
    agent: AgentView
    alive: bool


class _Agents(msgspec.Struct):
    items: list[_AgentLine]


class _Beats(msgspec.Struct):
    items: list[tuple[float, Vitals]]


class Ended(msgspec.Struct):
    """One ended request, as its run reads it back."""

    id: int
    uri: str
    state: str


class _Block(msgspec.Struct):
    id: int
    requests: list[Ended]


class _Finished(msgspec.Struct):
    blocks: list[_Block]


class Acknowledged:
    """The client's own memory of what was promised to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, urls: Sequence[str]) -> None:
        """On disk when it returns."""
        with self._path.open("a") as file:
            file.writelines(f"{url}\n" for url in urls)
            file.flush()
            os.fsync(file.fileno())

    def urls(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


class Client:
    """Offers URLs, tries again when a call fails, and writes down what was taken."""

    def __init__(self, urls: Sequence[str], token: str, acknowledged: Acknowledged) -> None:
        self.api = CenterClient(urls, token, SystemClock(), Random())  # noqa: S311 - jitter
        self.acknowledged = acknowledged
        #: Calls that had to be made again.
        self.retries = 0
        #: The longest that a call took, tries included.
        self.longest = 0.0

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call until it is answered; raises the last error after `PATIENCE`."""
        began = time.monotonic()
        while True:
            try:
                answer = await call()
            except SkepError as error:
                if not error.retryable or time.monotonic() - began > PATIENCE:
                    raise
                self.retries += 1
                await asyncio.sleep(STEP)
            else:
                self.longest = max(self.longest, time.monotonic() - began)
                return answer

    async def open_run(self, **settings: object) -> None:
        body = {"settings": settings}
        await self.insist(lambda: self.api.call("PUT", f"/api/v1/runs/{RUN}", body, bytes))

    async def offer(self, urls: Sequence[str], **more: object) -> None:
        """Acknowledged and written down when it returns."""
        offered = [{"uri": url, **more} for url in urls]
        path = f"/requestqueue/{RUN}"
        await self.insist(lambda: self.api.call("POST", path, offered, bytes, seconds=5))
        await asyncio.to_thread(self.acknowledged.add, urls)

    async def ledger(self, *, audit: bool = False) -> Ledger:
        """Raises AssertionError when it does not add up."""
        path = f"/api/v1/ledger?audit={str(audit).lower()}"
        answer = await self.insist(lambda: self.api.call("GET", path, None, _LedgerAnswer))
        assert answer.unaccounted == 0, answer.ledger.line()
        return answer.ledger

    async def agents(self) -> dict[str, bool]:
        """Every agent that the center knows, and whether it thinks that it lives."""
        call = self.api.call
        found = await self.insist(lambda: call("GET", "/api/v1/agents", None, _Agents))
        return {line.agent.id: line.alive for line in found.items}

    async def vitals(self, agent: str) -> Vitals:
        """What an agent said of itself in its last beat."""
        found = await self.api.call("GET", "/api/v1/agents", None, _Agents)
        return next(line.agent.vitals for line in found.items if line.agent.id == agent)

    async def beats(self, agent: str) -> list[float]:
        """Moments (the center's clock) of the beats that it has noted, oldest first."""
        path = f"/api/v1/agents/{agent}/vitals"
        found = await self.insist(lambda: self.api.call("GET", path, None, _Beats))
        return [at for at, _ in found.items]

    async def is_alive(self, agent: str) -> bool:
        return (await self.agents()).get(agent, False)

    async def allow(self, agent: str, *, enabled: bool) -> None:
        """Let an agent work, or give it nothing more."""
        await self.command(agent, "enable" if enabled else "disable")

    async def command(self, agent: str, verb: str) -> None:
        path = f"/api/v1/agents/{agent}/{verb}"
        await self.insist(lambda: self.api.call("POST", path, None, bytes))

    async def ended(self) -> list[Ended]:
        """Everything that ended and was not read before."""
        found: list[Ended] = []
        path = f"/requestqueue/{RUN}"
        while True:
            page = await self.api.call("GET", f"{path}?limit=100", None, _Finished)
            if not page.blocks:
                return found
            found += [one for block in page.blocks for one in block.requests]
            ids = {"blocks": [block.id for block in page.blocks]}
            await self.api.call("POST", f"{path}/collected", ids, bytes)

    async def metric(self, name: str) -> float:
        """A figure of the center's /metrics; 0 when it is not there."""
        text = await self.api.call("GET", "/metrics", None, bytes)
        lines = (line.rpartition(" ") for line in text.decode().splitlines())
        return sum(float(value) for key, _, value in lines if key.split("{")[0] == name)

    async def metric_above(self, name: str, value: float) -> bool:
        return await self.metric(name) > value
