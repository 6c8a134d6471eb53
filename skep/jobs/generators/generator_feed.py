"""Feeds a run from its job's generators until all have finished. Centers only.

A batch and its counts are stored in one transaction before the next batch is read. After a crash
the generator is restarted, and requests that it produced before are recognised: none is lost or
stored twice. A run is not finished before its generators are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

import msgspec

from skep.archive.ports import Archive
from skep.errors import LostLease, SkepError, StaleToken
from skep.jobs.context import JobContext
from skep.jobs.generators.generator_contract import (
    BATCH,
    Batches,
    GeneratorCrashed,
    GeneratorFailed,
    Raw,
    request_of,
    settled,
)
from skep.jobs.generators.generator_intake import accept_when_available
from skep.jobs.generators.sitemap_source import SitemapSource, maps_run
from skep.jobs.generators.sources import Sources
from skep.jobs.intake import Intake
from skep.jobs.request_sources import Generated, GeneratorBatch, Refused
from skep.model.hosts.named_places import places_in
from skep.model.jobs.generator_progress import (
    REQUESTS,
    Counts,
    Generation,
    GenerationState,
    Taken,
    generator_of,
)
from skep.model.jobs.job import Generator, Job, JobRun, RunLease
from skep.model.logs import LogSource, LogSourceKind
from skep.model.request import Offered
from skep.model.states import RunState
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.store.ports import Store

log = logging.getLogger(__name__)

#: Crashes of a generator's process before it has failed.
RESTARTS = 5
ALERT = "job_failed"
AT_ONCE = 16
#: Rows that one transaction deletes.
FORGET = 5000


class Feeder:
    """One center's generators."""

    def __init__(self, context: JobContext, archive: Archive, sources: Sources) -> None:
        self._store = context.store
        self._intake = context.intake
        self._archive = archive
        self.sources = sources
        self._clock = context.clock
        self._wrote = context.wrote
        self._rng = context.rng
        settings = context.settings
        self._restart = Backoff(first=settings.restart_first, cap=settings.restart_cap)

    async def requests(self, run: str, job: Job) -> None:
        """Store the job's own requests, before its first generator starts."""
        if not job.requests:
            return
        own = Generator("list", "requests", uris=job.requests)
        if not job.chosen.dedup:
            await self._plainly(run, own)
            return
        reason = await self._one(run, job, own, REQUESTS)
        if reason:  # unexpected: they were checked when the job was stored
            log.warning("run %s of job %s: %s", run, job.name, reason)

    async def _plainly(self, run: str, own: Generator) -> None:
        offered = [settled(one, own, REQUESTS, number) for number, one in enumerate(own.uris)]
        for start in range(0, len(offered), BATCH):
            await self._intake.accept(run, offered[start : start + BATCH])

    async def feed(self, held: JobRun, job: Job) -> str:
        """Run every generator of this run; return why some failed, "" when none did."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(place: int, generator: Generator) -> str:
            async with room:
                return await self._one(held.run, job, _told(generator, held), place, held.proof)

        chosen = chosen_of(held.fire_key, job)
        tasks = [asyncio.create_task(one(place, part)) for place, part in chosen]
        try:
            reasons = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return "; ".join(filter(None, reasons))

    async def forget(self) -> None:
        """Delete expired URIs in small batches."""
        while await self._store.generations.forget(self._clock.now(), FORGET) >= FORGET:
            pass

    async def clear(self, held: JobRun, job: Job, state: RunState) -> None:
        """Pause or cancel the runs of its sitemaps when the run is paused or has ended."""
        to = RunState.PAUSED if state in {RunState.PAUSED, RunState.FAILED} else RunState.CANCELLED
        for place, generator in chosen_of(held.fire_key, job):
            if generator.traits.fetched:
                maps, why = maps_run(held.run, place), f"run {held.run} ended"
                try:
                    await self._intake.move(maps, to, why, held.proof)
                except LostLease:
                    raise
                except SkepError:  # it was never opened, or has ended
                    continue

    async def _one(
        self,
        run: str,
        job: Job,
        generator: Generator,
        place: int,
        lease: RunLease | None = None,
    ) -> str:
        """Run one generator, restarting it after a crash; return why it failed, or ""."""
        name = generator.name or f"{generator.kind} {place}"
        new = Generation(run, place, name[:100], generator.kind)
        crashes = 0
        while True:
            begun = await self._store.generations.begin(new, lease)
            if begun.state is GenerationState.DONE:
                return ""
            feed = Feed(self._store, self._intake, self._clock, job, generator, begun)
            try:
                await self._through(feed, run, job, generator, place)
            except GeneratorCrashed as error:
                crashes += 1
                if crashes > RESTARTS:
                    return await self._failed(feed, job, f"{error}, {crashes} times")
                log.warning("generator %s of run %s crashed; restarting: %s", name, run, error)
                await self._clock.sleep(self._restart.delay(crashes, self._rng))
            except GeneratorFailed as error:
                return await self._failed(feed, job, str(error))
            else:
                await self._store.generations.end(
                    begun, GenerationState.DONE, feed.counts().complaint, feed.counts()
                )
                return ""

    async def _through(
        self, feed: Feed, run: str, job: Job, generator: Generator, place: int
    ) -> None:
        await feed.open()
        source = LogSource(LogSourceKind.GENERATOR, job.name, run)
        wrote = partial(self._wrote, source, feed.begun.starts)
        batches = self._batches(run, job, generator, place, wrote)
        async with aclosing(batches):
            async for batch in batches:
                await feed.put(batch)

    def _batches(
        self,
        run: str,
        job: Job,
        generator: Generator,
        place: int,
        wrote: Callable[[str], None],
    ) -> Batches:
        if not generator.traits.fetched:
            return self.sources.open(generator, wrote)
        return SitemapSource(
            run,
            job,
            generator,
            place,
            self._store,
            self._intake,
            self._archive,
            self.sources.boxes,
            self._clock,
        ).batches()

    async def _failed(self, feed: Feed, job: Job, why: str) -> str:
        begun = feed.begun
        reason = f"generator {begun.name}: {why}"
        failed = GenerationState.FAILED
        if not await self._store.generations.end(begun, failed, why, feed.counts()):
            raise StaleToken(f"generator {begun.name} of run {begun.run} was started again")
        told = f"run {begun.run}: {reason}"
        await self._store.alerts.raise_(ALERT, job.name, told[:2000], self._clock.now())
        return reason


class ReadBatch(NamedTuple):
    """A batch whose entries were converted to requests where possible."""

    offered: list[Offered]
    #: The position of each request in the batch.
    positions: list[int]
    unreadable: list[Refused]

    def all_refused(self, invalid: Sequence[Refused]) -> list[Refused]:
        """Unreadable entries and invalid requests, in the order of the batch."""
        found = [Refused(self.positions[one.position], one.error) for one in invalid]
        return sorted([*self.unreadable, *found], key=lambda one: one.position)


def _read_batch(batch: Sequence[Raw], generator: Generator, place: int, first: int) -> ReadBatch:
    read = ReadBatch([], [], [])
    for position, raw in enumerate(batch):
        try:
            offered = settled(request_of(raw), generator, place, first + position)
        except SkepError as error:
            read.unreadable.append(Refused(position, error))
        else:
            read.offered.append(offered)
            read.positions.append(position)
    return read


class Feed:
    """Brings the output of one generator into the run."""

    def __init__(
        self,
        store: Store,
        intake: Intake,
        clock: Clock,
        job: Job,
        generator: Generator,
        begun: Generation,
    ) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._job = job
        self._generator = generator
        self.begun = begun
        self._began = clock.monotonic()
        self._complaint = ""
        # Sitemaps that were read are not read again: their counts continue.
        goes_on = generator.traits.fetched
        self._yielded, self._bad = (begun.yielded, begun.bad) if goes_on else (0, 0)
        self._before = begun.seconds if goes_on else 0.0

    def counts(self, refused: Sequence[Refused] = ()) -> Counts:
        """The counts so far, including the refused requests of a batch that is not stored yet."""
        seconds = round(self._before + self._clock.monotonic() - self._began, 3)
        return Counts(self._yielded, self._bad + len(refused), seconds, self._last(refused))

    def _last(self, refused: Sequence[Refused]) -> str:
        if not refused:
            return self._complaint
        return refused[-1].error.detail.removeprefix("request 0: ")

    async def open(self) -> None:
        """Allow the host of a sitemap, because a user wrote its URL into the job."""
        if self._generator.traits.fetched:
            run = await self._store.runs.get(self.begun.run)
            await self._intake.name_places(run, places_in([self._generator.url]))

    async def put(self, batch: Sequence[Raw]) -> Taken:
        """Store a batch; it is on disk when this returns. Raises GeneratorFailed at a limit."""
        read = _read_batch(batch, self._generator, self.begun.n, self._yielded)
        self._yielded += len(batch)
        source = GeneratorBatch(
            self._store,
            self.begun,
            lambda refused: self.counts(read.all_refused(refused)),
            self._generator.traits.written,
            self._job.name,
            self._generator.dedup or self._job.chosen.dedup,
        )
        generated = await self._accept(source, read.offered)
        self._count(read.all_refused(generated.refused))
        return generated.taken

    async def _accept(self, source: GeneratorBatch, offered: Sequence[Offered]) -> Generated:
        """Requests of the job itself never wait here: they are stored while the run is prepared.
        That is repeated later, and until then the run could be neither cancelled nor stopped."""
        if self.begun.n == REQUESTS:
            return await self._intake.accept_from(source, self.begun.run, offered)
        return await accept_when_available(
            self._intake, self._clock, source, self.begun.run, offered
        )

    def _count(self, refused: Sequence[Refused]) -> None:
        self._complaint = self._last(refused)
        self._bad += len(refused)
        if self._bad > self._generator.bad_limit:
            raise GeneratorFailed(
                f"{self._bad} of {self._yielded} URIs are invalid, more than its bad_limit of "
                f"{self._generator.bad_limit}; the last one: {self._complaint}"
            )
        if self._yielded > self._generator.limit:
            raise GeneratorFailed(f"limit exceeded: more than {self._generator.limit} URIs")


def chosen_of(fire_key: str, job: Job) -> list[tuple[int, Generator]]:
    """The generators of a run: the one whose cron line started it, else those without a cron line;
    all of them when there would be nothing to do."""
    parts = list(enumerate(job.generators))
    if name := generator_of(fire_key):
        return [(place, part) for place, part in parts if part.name == name]
    plain = [(place, part) for place, part in parts if not part.cron]
    return plain if plain or job.requests else parts


def _told(generator: Generator, held: JobRun) -> Generator:
    """The generator with the arguments of the run, which override its own."""
    if not held.arguments or generator.traits.language is None:
        return generator
    return msgspec.structs.replace(generator, arguments={**generator.arguments, **held.chosen})
