"""Carries the items of a run from its center into sinks while the run goes on.

Runs beside a spider's engine. Each sink has a pace and a position of its own. Items are
safe in the center before they come here, so nothing is lost when this is killed: the next
one goes on from the position that the sink kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.cli.reach import run_path
from skep.errors import SkepError
from skep.runtime.bell import within
from skep.streams.ports import Record, Refused, Sink

if TYPE_CHECKING:
    from skep.runtime.clock import Clock
    from skep.wire.client import CenterClient

BATCH = 1000
LOOK_EVERY = 0.3
#: Tries of one call when the run has ended and something does not work.
LAST_TRIES = 20


class Outlet(msgspec.Struct):
    """What went into one sink so far, and what stopped it."""

    place: str
    items: int = 0
    refused: int = 0
    problem: str = ""


class _Item(msgspec.Struct):
    id: int
    request: int
    data: dict[str, Any]


class ItemPage(msgspec.Struct):
    """GET /api/v1/runs/{run}/items."""

    items: list[_Item]
    next: int


class Outlets:
    """`open`, then `run` as a task; `finish` when the run has ended."""

    def __init__(self, client: CenterClient, run: str, sinks: Sequence[Sink], clock: Clock) -> None:
        self._client = client
        self._run = run
        self._sinks = sinks
        self._clock = clock
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.outlets = [Outlet(sink.describe()) for sink in sinks]

    async def open(self) -> None:
        """Raises ConfigurationError before anything was downloaded for nothing."""
        starts = [await sink.open() for sink in self._sinks]
        for sink, outlet, start in zip(self._sinks, self.outlets, starts, strict=True):
            self._tasks.append(asyncio.create_task(self._carry(sink, outlet, start)))

    async def finish(self) -> None:
        """Everything that the run has is in the sinks, or `problem` says why not."""
        self._ended.set()
        await asyncio.gather(*self._tasks)
        for sink in self._sinks:
            await sink.close()

    async def _carry(self, sink: Sink, outlet: Outlet, position: int) -> None:
        failures = 0
        while failures < LAST_TRIES:
            last = self._ended.is_set()
            try:
                page = await read_items(self._client, self._run, position)
                if page.items:
                    refused = await write_page(sink, page)
                    position = page.next
                    outlet.items += len(page.items) - len(refused)
                    outlet.refused += len(refused)
                elif last:
                    return
                outlet.problem, failures = "", 0
            except SkepError as error:
                outlet.problem = error.detail
                if not error.retryable and last:
                    return
                failures += last
                page = None
            if page is None or not page.items:
                await self._pause(last)

    async def _pause(self, last: bool) -> None:
        if last:
            await self._clock.sleep(LOOK_EVERY)
        else:
            await within(self._ended, LOOK_EVERY)


async def write_page(sink: Sink, page: ItemPage) -> list[Refused]:
    """Store a page of items; those that the sink refuses are left out and handed back."""
    records = [Record(item.id, item.data) for item in page.items]
    left_out: list[Refused] = []
    while records and (refused := await sink.write(records)):
        left_out += refused
        places = {one.position for one in refused}
        records = [record for record in records if record.position not in places]
    return left_out


async def read_items(client: CenterClient, run: str, after: int, limit: int = BATCH) -> ItemPage:
    """The next items of a run, oldest first."""
    path = f"{run_path(run, 'items')}?after={after}&limit={limit}"
    accept = {"Accept": "application/msgpack"}
    return await client.call("GET", path, None, ItemPage, headers=accept, seconds=60.0)
