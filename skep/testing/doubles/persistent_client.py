"""A client that retries and stores what was acknowledged. Runs in a test.

It repeats a call until it is answered, and writes every acknowledged URL to its own synced file:
tests compare the center with that file.
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
from skep.model.block import FinishedRequest
from skep.model.fleet.agent import Vitals
from skep.model.ledger import Ledger
from skep.model.request import Offered
from skep.model.run import AskedSettings
from skep.runtime.clock import SystemClock
from skep.wire.api.agents import AgentVerb
from skep.wire.api.center import WhichLedger
from skep.wire.api.queue import Collect, FinishedPage
from skep.wire.api.runs import OpenRun
from skep.wire.client import CALL_SECONDS, CenterClient
from skep.wire.client.api import CenterApi

T = TypeVar("T")
RUN = "web"
#: Seconds between two tries.
STEP = 0.03
#: Seconds after which a call fails.
PATIENCE = 30.0


class Acknowledged:
    """The client's record of acknowledged URLs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, urls: Sequence[str]) -> None:
        """On disk when this returns."""
        with self._path.open("a") as file:
            file.writelines(f"{url}\n" for url in urls)
            file.flush()
            os.fsync(file.fileno())

    def urls(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


class Client:
    """Submits URLs, retries failed calls, and records what was acknowledged."""

    def __init__(self, urls: Sequence[str], token: str, acknowledged: Acknowledged) -> None:
        self.api = CenterClient(urls, token, SystemClock(), Random())  # noqa: S311 - jitter
        self.center = CenterApi(self.api.transport, CALL_SECONDS)
        self.acknowledged = acknowledged
        #: Repeated calls.
        self.retries = 0
        #: The longest duration of a call, including retries.
        self.longest = 0.0

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until it is answered; raises the last error after `PATIENCE`."""
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
        body = OpenRun(settings=msgspec.convert(settings, AskedSettings))
        await self.insist(lambda: self.center.runs.open(RUN, body))

    async def offer(self, urls: Sequence[str], **more: object) -> None:
        """Submit URLs; they are acknowledged and recorded when this returns."""
        offered = msgspec.convert([{"uri": url, **more} for url in urls], list[Offered])
        quick = CenterApi(self.api.transport, seconds=5.0)
        await self.insist(lambda: quick.queue.submit(RUN, offered))
        await asyncio.to_thread(self.acknowledged.add, urls)

    async def ledger(self, *, audit: bool = False) -> Ledger:
        """Raises AssertionError if it does not add up."""
        answer = await self.insist(lambda: self.center.center.ledger(WhichLedger(audit)))
        assert answer.unaccounted == 0, answer.ledger.line()
        return answer.ledger

    async def agents(self) -> dict[str, bool]:
        """Every agent that the center knows, and whether it counts as alive."""
        found = await self.insist(self.center.agents.list)
        return {line.agent.id: line.alive for line in found.items}

    async def vitals(self, agent: str) -> Vitals:
        """The figures of an agent's last heartbeat."""
        found = await self.center.agents.list()
        return next(line.agent.vitals for line in found.items if line.agent.id == agent)

    async def heartbeats(self, agent: str) -> list[float]:
        """Times (the center's clock) of the stored heartbeats, oldest first."""
        found = await self.insist(lambda: self.center.agents.vitals(agent))
        return [at for at, _ in found.items]

    async def is_alive(self, agent: str) -> bool:
        return (await self.agents()).get(agent, False)

    async def allow(self, agent: str, *, enabled: bool) -> None:
        """Enable or disable an agent."""
        await self.command(agent, "enable" if enabled else "disable")

    async def command(self, agent: str, verb: AgentVerb) -> None:
        await self.insist(lambda: self.center.agents.command(agent, verb))

    async def ended(self) -> list[FinishedRequest]:
        """Every request that ended since the last call."""
        found: list[FinishedRequest] = []
        while True:
            page = await self.center.queue.finished(RUN, FinishedPage(100))
            if not page.blocks:
                return found
            found += [one for block in page.blocks for one in block.requests]
            await self.center.queue.collect(RUN, Collect([block.id for block in page.blocks]))

    async def metric(self, name: str) -> float:
        """A value of the center's /metrics; 0 if it is missing."""
        text = await self.center.health.metrics()
        lines = (line.rpartition(" ") for line in text.decode().splitlines())
        return sum(float(value) for key, _, value in lines if key.split("{")[0] == name)

    async def metric_above(self, name: str, value: float) -> bool:
        return await self.metric(name) > value
