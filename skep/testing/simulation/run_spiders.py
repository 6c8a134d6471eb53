"""Simulated spiders of jobs and the sink of their items.

A spider drives its run through the real handlers of the center that started it, with its real
token: it submits pages, reads ended ones, stores an item for each, and ends the run. The sink is
external: it stores what it gets, and detects when more than a batch is repeated.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

from skep.center.api import driver
from skep.center.http.endpoint import Endpoint
from skep.errors import Conflict, Unauthorized, Unavailable
from skep.jobs.runs import delivery_writer
from skep.jobs.runs.spider_process import SpiderCommand
from skep.model.request import NewRequest
from skep.model.run import RunSettings
from skep.streams import registry
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import SinkOptions
from skep.testing.simulation.gates import CenterBorder, GatedClock, NoAnswer
from skep.wire.api.driver import FoundItem, LastWord, NewDriver, Read, Reading, Turn

DRIVE, READ, TURN, END = driver.ENDPOINTS[:4]
#: Records of one batch in a simulation.
BATCH = 5
#: Exit codes of a spider: success, refused or failed, asked to end.
WELL, REFUSED, ASKED = 0, 1, -15
#: Names of a spider's arguments.
COUNT, END_AT, FAIL_AT = "count", "end_at", "fail_at"


class SpiderCenter(Protocol):
    """The center that started a spider, as the spider uses it."""

    gate: CenterBorder

    async def call(self, row: Endpoint, body: Any, *, path: Mapping[str, str], token: str) -> Any:
        """Call the handler of a route; raises NoAnswer while the center is down."""


class SimSpider:
    """One process, as the run supervisor handles it."""

    def __init__(self, center: SpiderCenter, order: SpiderCommand) -> None:
        self._center = center
        self._order = order
        self._asked = False
        self._ended = asyncio.Event()
        self._code = WELL
        self.pid = id(self)
        self._said = ""
        # In an empty context: it is not a task of its center.
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._live(), context=contextvars.Context())

    async def ended_within(self, seconds: float) -> int | None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return None
        return self._code

    def ask_to_end(self) -> None:
        self._asked = True

    async def kill(self) -> None:
        self.end()

    def end(self) -> None:
        if not self._ended.is_set():
            self._code = -9
            self._ended.set()
        self._task.cancel()

    def tail(self) -> str:
        return self._said

    # -- its work

    async def _live(self) -> None:
        try:
            self._code = await self._drive()
        except Unauthorized as error:
            self._code, self._said = REFUSED, error.detail
        except Conflict as error:  # another driver, or the run has ended
            self._said = error.detail
        finally:
            self._ended.set()

    async def _drive(self) -> int:
        said = self._order.arguments
        settings = RunSettings(block_size=5, retries=3)
        driver = (await self._ask(DRIVE, NewDriver(settings=settings))).driver
        pages = [
            NewRequest(f"http://127.0.0.1/{self._order.run}/{n}") for n in range(int(said[COUNT]))
        ]
        await self._ask(TURN, Turn(driver, requests=pages))
        read = 0
        while True:
            if self._asked:
                return ASKED
            reading: Reading = await self._ask(READ, Read(bodies=False, wait=1.0))
            if reading.state != "running":
                return WELL
            for block in reading.blocks:
                items = [FoundItem(page.id, 0, {"uri": page.uri}) for page in block.pages]
                await self._ask(TURN, Turn(driver, [block.id], items))
                read += len(items)
            if said[FAIL_AT] and read >= int(said[FAIL_AT]):
                self._said = "failed on purpose"
                return REFUSED
            enough = bool(said[END_AT]) and read >= int(said[END_AT])
            if enough or not (reading.blocks or reading.open):
                reason = "page_limit" if enough else ""
                await self._ask(END, LastWord(driver, "finished", reason))
                return WELL

    async def _ask(self, row: Any, body: Any) -> Any:
        """Repeat a call until its center answers."""
        while True:
            try:
                path = {"identity": self._order.run}
                return await self._center.call(row, body, path=path, token=self._order.token)
            except (NoAnswer, Unavailable):
                await asyncio.sleep(0.5)


class SimSpawner:
    """Starts spiders for one center."""

    def __init__(self, center: SpiderCenter) -> None:
        self._center = center
        self._spiders: list[SimSpider] = []

    def log_file(self, run: str) -> Path:
        """Simulated spiders write no output; centers of the simulation store no log lines."""
        return Path(run)

    async def start(self, order: SpiderCommand) -> SimSpider:
        await self._center.gate.passing()
        spider = SimSpider(self._center, order)
        self._spiders.append(spider)
        return spider

    def end_all(self) -> None:
        for spider in self._spiders:
            spider.end()
        self._spiders = []


class SinkContent:
    """The content of all sinks: positions by run, in the order of arrival."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.records: dict[str, list[int]] = {}
        #: The rate of outages.
        self.away = 0.0
        self.repeated = 0
        self.broken = ""


class SimSink:
    """A sink of one center. Stores no position; is down at times."""

    def __init__(self, output_sink: SinkContent, run: str, gate: CenterBorder) -> None:
        self._outlet = output_sink
        self._run = run
        self._gate = gate
        self._repeated = 0

    async def open(self) -> int:
        await self._gate.passing()
        return 0

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        await self._gate.passing()
        if self._outlet.rng.random() < self._outlet.away:
            raise Unavailable("the sink is away")
        self._keep([record.position for record in records])
        await self._gate.passing()
        return []

    def _keep(self, positions: Sequence[int]) -> None:
        """A writer may repeat only the batch whose position was not stored."""
        output_sink = self._outlet
        kept = output_sink.records.setdefault(self._run, [])
        again = len(set(positions) & set(kept))
        self._repeated += again
        output_sink.repeated += again
        if self._repeated > BATCH:
            output_sink.broken = f"the sink of {self._run} got {self._repeated} records again"
        kept += positions

    async def close(self) -> None:
        """There is nothing to close."""

    def describe(self) -> str:
        return "simulated"


@contextmanager
def simulated_sinks(output_sink: SinkContent) -> Iterator[None]:
    """Register the sink kind `simulated://`, with small batches."""

    def make(_place: Any, _options: Any, around: registry.Surroundings) -> Any:
        assert isinstance(around.clock, GatedClock)
        return SimSink(output_sink, around.name, around.clock.gate)

    kinds, batch = registry.KINDS, delivery_writer.BATCH
    kind = registry.SinkKind("simulated", ("simulated",), SinkOptions, make, registry.AGAIN, "")
    registry.KINDS, delivery_writer.BATCH = (*kinds, kind), BATCH
    try:
        yield
    finally:
        registry.KINDS, delivery_writer.BATCH = kinds, batch
