"""Clients that call continuously while centers are killed in turn (fault 15).

Runs in a test or a benchmark, with a `Fleet` of several centers. Submitters and readers call
without a pause; every call is timed, and a call that no center answered is counted. Calls during
the outage of a center are listed separately.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from skep.errors import SkepError
from skep.testing.doubles.persistent_client import RUN, Client
from skep.testing.fleet import Fleet
from skep.testing.processes import CenterProcess

BATCH = 20
#: Seconds between two calls of one client.
PAUSE = 0.01
READERS = 2
#: The paths that readers use alternately.
QUESTIONS = ("/api/v1/ledger", f"/api/v1/runs/{RUN}", "/api/v1/lanes", "/api/v1/agents")


class Figures(msgspec.Struct, frozen=True):
    """The results of the clients; times in seconds."""

    kills: int
    calls: int
    #: Calls that no center answered, after one try of each address.
    failed_calls: int
    #: Calls that were active, or made, while one of the centers was down.
    calls_in_failover: int
    p50: float
    p99: float
    p99_in_failover: float
    longest: float
    #: Longest time from a kill to the restart of that center.
    longest_away: float


@dataclass(slots=True)
class Load:
    """Clients of one fleet. `keep_calling` until `requests` pages are submitted and `stop`."""

    fleet: Fleet
    centers: Sequence[CenterProcess]
    requests: int
    failed: int = 0
    handed_in: int = 0
    #: (start, end) of each call, and of each outage of a center.
    calls: list[tuple[float, float]] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    _stopping: bool = False

    async def keep_calling(self) -> None:
        """Returns after `stop`, when everything is submitted."""
        urls = [center.url for center in self.centers]
        # Every client starts with another center.
        orders = [urls[number % len(urls) :] + urls[: number % len(urls)] for number in range(3)]
        clients = [self.fleet.new_client(order) for order in orders]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._submit(clients[0]))
                for client in clients[1 : 1 + READERS]:
                    group.create_task(self._read(client))
        finally:
            for client in clients:
                await client.api.close()

    def stop(self) -> None:
        self._stopping = True

    async def _submit(self, client: Client) -> None:
        while self.handed_in < self.requests:
            pages = self.fleet.urls(min(BATCH, self.requests - self.handed_in))
            offered = [{"uri": url} for url in pages]
            await self._timed(
                lambda offered=offered: client.api.call(  # type: ignore[misc]  # bound now
                    "POST", f"/requestqueue/{RUN}", offered, bytes, seconds=10
                )
            )
            await asyncio.to_thread(client.acknowledged.add, pages)
            self.handed_in += len(pages)
            await asyncio.sleep(PAUSE)

    async def _read(self, client: Client) -> None:
        number = 0
        while not self._stopping:
            path = QUESTIONS[number % len(QUESTIONS)]
            number += 1
            await self._timed(
                lambda path=path: client.api.call("GET", path, None, bytes, seconds=10)  # type: ignore[misc]  # bound now
            )
            await asyncio.sleep(PAUSE)

    async def _timed(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeat the call until it is answered; only the first try should be needed."""
        began = time.monotonic()
        while True:
            try:
                await call()
            except SkepError as error:
                if not error.retryable:
                    raise
                self.failed += 1
                await asyncio.sleep(PAUSE)
            else:
                self.calls.append((began, time.monotonic()))
                return

    async def kill_in_turn(self, kills: int, rest: float = 0.0) -> None:
        """kill -9 and restart each center in turn, distributed over the work; the next follows
        after `rest` seconds."""
        for number in range(kills):
            await self.fleet.until_done(self.requests * number // (kills + 2), 120)
            victim = self.centers[number % len(self.centers)]
            began = time.monotonic()
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
            self.away.append((began, time.monotonic()))
            await asyncio.sleep(rest)

    def figures(self) -> Figures:
        took = sorted(end - began for began, end in self.calls)
        met = sorted(end - began for began, end in self.calls if self._met(began, end))
        return Figures(
            kills=len(self.away),
            calls=len(took),
            failed_calls=self.failed,
            calls_in_failover=len(met),
            p50=_at(took, 0.5),
            p99=_at(took, 0.99),
            p99_in_failover=_at(met, 0.99),
            longest=took[-1],
            longest_away=max(end - began for began, end in self.away),
        )

    def _met(self, began: float, end: float) -> bool:
        return any(began < back and end > gone for gone, back in self.away)


def _at(ordered: Sequence[float], part: float) -> float:
    """The value at this quantile; 0 for no values."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else 0.0
