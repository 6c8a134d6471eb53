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
from hashlib import blake2b
from pathlib import Path
from random import Random

import msgspec

from skep.errors import ConfigurationError, SkepError, Unavailable
from skep.runtime.clock import Clock
from skep.spiders.session.item_source import ItemSource
from skep.streams.ports import Refused, Sink
from skep.streams.position import PositionFile
from skep.streams.registry import ONCE, file_of, kind_of, open_sink
from skep.streams.sink_writer import Read, SinkWriter
from skep.wire.client.api import CenterApi

BATCH = 1000
LOOK_EVERY = 0.3
#: When the run has ended: seconds without progress for a sink that is away.
LAST_PATIENCE = 30.0
#: Refused items that are logged one by one.
LOGGED = 10

log = logging.getLogger(__name__)


class SinkProgress(msgspec.Struct):
    """What went into one sink, and why not everything did."""

    place: str
    items: int = 0
    refused: int = 0
    problem: str = ""


def filled_files(urls: Sequence[str]) -> list[Path]:
    """Files among the outputs that hold something already."""
    files = [path for url in urls if (path := file_of(url)) is not None]
    return [path for path in files if path.is_file() and path.stat().st_size]


def clear_files(urls: Sequence[str]) -> None:
    """Delete these files and what is known about them; raises ConfigurationError for a sink
    that is not a file."""
    for url in urls:
        path = file_of(url)
        if path is None:
            raise ConfigurationError(f"-O {url}: only files can be overwritten; use -o")
        for one in (path, path.with_name(f".{path.name}.position")):
            one.unlink(missing_ok=True)


class OutputSink:
    """One sink, and the task that fills it."""

    def __init__(
        self,
        sink: Sink,
        read: Read,
        ended: asyncio.Event,
        memory: PositionFile | None,
        clock: Clock,
        rng: Random,
    ) -> None:
        self.progress = SinkProgress(sink.describe())
        self._ended = ended
        self._writer = SinkWriter(
            sink,
            read,
            clock,
            rng,
            dead=self._refused,
            batch=BATCH,
            memory=memory,
            idle=LOOK_EVERY,
        )
        self._task = asyncio.create_task(self._fill())

    def stop(self) -> None:
        """End at the next chance; the batch under way is finished."""
        self._writer.stop()

    def give_up(self, advice: str) -> None:
        """As `stop`, and say what is missing if it is not done yet."""
        if not self._task.done():
            self.progress.problem = f"the delivery was interrupted; {advice}"
            self.stop()

    async def finish(self, advice: str) -> None:
        """Let it end when the run has. One that makes no progress any more is stopped."""
        self._writer.wake()
        while not self._task.done():
            before = self._writer.position
            await asyncio.wait({self._task}, timeout=LAST_PATIENCE)
            if not self._task.done() and self._writer.position == before:
                self.progress.problem = f"{self.progress.place} does not answer; {advice}"
                self.stop()
                await self._task
        await self._writer.close()

    async def _fill(self) -> None:
        writer, progress = self._writer, self.progress
        try:
            await writer.run_until(self._ended.is_set)
        except SkepError as error:
            progress.problem = error.detail
        progress.items, progress.refused = writer.counts.written, writer.counts.dead

    async def _refused(self, refused: Refused) -> None:
        progress = self.progress
        progress.refused += 1
        if progress.refused <= LOGGED:
            log.warning("%s refuses item %d: %s", progress.place, refused.position, refused.reason)


class SinkWriters:
    """`open` before the run, `finish` after it."""

    def __init__(self, api: CenterApi, run: str, folder: Path, clock: Clock, rng: Random) -> None:
        """`folder` is for the positions of sinks that cannot keep their own."""
        self._run = run
        self._folder = folder
        self._clock = clock
        self._rng = rng
        self._ended = asyncio.Event()
        self._source = ItemSource(api, run, self._ended, clock, rng)
        self._sinks: list[OutputSink] = []

    @property
    def output_sinks(self) -> list[SinkProgress]:
        """How far each sink is."""
        return [sink.progress for sink in self._sinks]

    async def open(self, urls: Sequence[str], options: dict[str, str] | None = None) -> None:
        """Raises ConfigurationError before anything was downloaded for nothing. A sink that is
        away is named at once and retried."""
        for url in urls:
            sink = open_sink(url, options, name=self._run, clock=self._clock)
            with suppress(Unavailable):  # it is tried again while the run goes on
                await sink.open()
            memory, source = self._memory(url), self._source.read
            one = OutputSink(sink, source, self._ended, memory, self._clock, self._rng)
            self._sinks.append(one)

    def stop(self) -> None:
        """End every sink at the next chance."""
        for sink in self._sinks:
            sink.stop()

    @property
    def _advice(self) -> str:
        return f"the items are kept, deliver them with `skep data export {self._run} -o URL`"

    def give_up(self) -> None:
        """Do not wait for sinks that are away; `problem` says what is missing."""
        for sink in self._sinks:
            sink.give_up(self._advice)

    async def finish(self) -> None:
        """Everything that the run has is in the sinks, or `problem` says why not."""
        self._ended.set()
        await asyncio.gather(*(sink.finish(self._advice) for sink in self._sinks))

    def _memory(self, url: str) -> PositionFile | None:
        if kind_of(url).promise == ONCE:
            return None
        folder = self._folder / "outputs"
        folder.mkdir(parents=True, exist_ok=True)
        digest = blake2b(url.encode(), digest_size=8).hexdigest()
        return PositionFile(folder / f"{self._run}-{digest}.position")
