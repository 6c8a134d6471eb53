"""Carries the items of a run from its center into sinks while the run goes on.

Runs beside a spider's engine. Each sink has a pace and a position of its own. Items are
safe in the center before they come here, so nothing is lost when this is killed: the next
one goes on from the position that the sink, or a small file for it, has kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from skep.errors import ConfigurationError, SkepError, Unavailable, UnknownRun
from skep.runtime.backoff import Backoff
from skep.streams.ports import Record, Refused
from skep.streams.position import PositionFile
from skep.streams.registry import ONCE, file_of, kind_of, open_sink
from skep.streams.sink_writer import SinkWriter
from skep.wire.api.results import ItemPage, Items
from skep.wire.client.api import CenterApi

if TYPE_CHECKING:
    from skep.runtime.clock import Clock
    from skep.wire.client import CenterClient

BATCH = 1000
LOOK_EVERY = 0.3
#: When the run has ended: tries of one call to a center that does not answer.
LAST_TRIES = 12
#: When the run has ended: seconds without progress for a sink that is away.
LAST_PATIENCE = 30.0
AGAIN = Backoff(first=0.2, cap=3.0)
#: Refused items that are logged one by one.
LOGGED = 10

log = logging.getLogger(__name__)


class SinkProgress(msgspec.Struct):
    """What went into one sink, and why not everything did."""

    place: str
    items: int = 0
    refused: int = 0
    problem: str = ""


async def read_items(client: CenterClient, run: str, after: int, limit: int = BATCH) -> Items:
    """The next items of a run, oldest first."""
    return await CenterApi(client.transport).results.items(run, ItemPage(after, limit))


def filled_files(urls: Sequence[str]) -> list[Path]:
    """Files among the outputs that hold something already."""
    files = [path for url in urls if (path := file_of(url)) is not None]
    return [path for path in files if path.is_file() and path.stat().st_size]


def clear_files(urls: Sequence[str]) -> None:
    """Delete these files and what is known about them; raises ConfigurationError for a sink
    that is no file."""
    for url in urls:
        path = file_of(url)
        if path is None:
            raise ConfigurationError(f"-O {url}: only files can be overwritten; use -o")
        for one in (path, path.with_name(f".{path.name}.position")):
            one.unlink(missing_ok=True)


class SinkWriters:
    """`open` before the run, `finish` after it."""

    def __init__(
        self,
        client: CenterClient,
        run: str,
        folder: Path,
        clock: Clock,
        rng: Random,
    ) -> None:
        """`folder` is for the positions of sinks that cannot keep their own."""
        self._client = client
        self._run = run
        self._folder = folder
        self._clock = clock
        self._rng = rng
        self._ended = asyncio.Event()
        self._pumps: list[SinkWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.output_sinks: list[SinkProgress] = []

    async def open(self, urls: Sequence[str], options: dict[str, str] | None = None) -> None:
        """Raises ConfigurationError before anything was downloaded for nothing. A sink that is
        away is named at once and retried."""
        for url in urls:
            sink = open_sink(url, options, name=self._run, clock=self._clock)
            with suppress(Unavailable):  # it is tried again while the run goes on
                await sink.open()
            output_sink = SinkProgress(sink.describe())
            pump = SinkWriter(
                sink,
                self._read,
                self._clock,
                self._rng,
                dead=partial(self._dead_letter, output_sink),
                batch=BATCH,
                memory=self._memory(url),
                idle=LOOK_EVERY,
            )
            self.output_sinks.append(output_sink)
            self._pumps.append(pump)
            self._tasks.append(asyncio.create_task(self._carry(pump, output_sink)))

    def _memory(self, url: str) -> PositionFile | None:
        if kind_of(url).promise == ONCE:
            return None
        folder = self._folder / "outputs"
        folder.mkdir(parents=True, exist_ok=True)
        digest = blake2b(url.encode(), digest_size=8).hexdigest()
        return PositionFile(folder / f"{self._run}-{digest}.position")

    async def finish(self) -> None:
        """Everything that the run has is in the sinks, or `problem` says why not."""
        self._ended.set()
        for pump in self._pumps:
            pump.wake()
        await asyncio.gather(
            *(
                self._last(*three)
                for three in zip(self._pumps, self._tasks, self.output_sinks, strict=True)
            )
        )

    async def _last(
        self, pump: SinkWriter, task: asyncio.Task[None], output_sink: SinkProgress
    ) -> None:
        """Let it end; one that makes no progress any more is stopped."""
        while not task.done():
            before = pump.position
            await asyncio.wait({task}, timeout=LAST_PATIENCE)
            if not task.done() and pump.position == before:
                output_sink.problem = (
                    f"{output_sink.place} does not answer; the items are kept, deliver them with"
                    f" `skep data export {self._run} -o URL`"
                )
                pump.stop()
                await task
        await pump.close()

    async def _carry(self, pump: SinkWriter, output_sink: SinkProgress) -> None:
        try:
            await pump.run_until(self._ended.is_set)
        except SkepError as error:
            output_sink.problem = error.detail
        output_sink.items, output_sink.refused = pump.counts.written, pump.counts.dead

    async def _read(self, after: int, limit: int) -> list[Record]:
        """With patience while the run goes on, and a little after it."""
        attempt = 0
        while True:
            try:
                page = await read_items(self._client, self._run, after, limit)
            except UnknownRun:
                # It is opened by the engine, perhaps in a moment.
                return []
            except SkepError as error:
                attempt = attempt + 1 if self._ended.is_set() else 1
                if not error.retryable or attempt >= LAST_TRIES:
                    # Not Unavailable: to the pump that would be the sink's.
                    raise ConfigurationError(error.detail) from error
            else:
                return [Record(item.id, item.data) for item in page.items]
            await self._clock.sleep(AGAIN.delay(attempt, self._rng))

    async def _dead_letter(self, output_sink: SinkProgress, refused: Refused) -> None:
        output_sink.refused += 1
        if output_sink.refused <= LOGGED:
            log.warning(
                "%s refuses item %d: %s", output_sink.place, refused.position, refused.reason
            )
