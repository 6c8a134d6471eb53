"""Sitemaps as a generator: agents fetch them, with politeness as for pages. Centers only.

Sitemaps are requests of a separate run, so that the content rules of the run that they feed do not
cut them. The center never fetches from a host itself, and sitemaps are unpacked and parsed in a
sandbox. A sitemap counts as read when all of its pages are on disk, so that after a crash the
next sitemap follows.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from skep.archive.ports import Archive
from skep.archive.records import FirstRecords, split_response
from skep.errors import Conflict, LostLease, SkepError, StaleToken
from skep.jobs.generators.code_sandbox import CodeSandboxes, SandboxRequest
from skep.jobs.generators.generator_contract import Batches, Complaint, GeneratorFailed, Raw
from skep.jobs.generators.generator_intake import accept_when_available
from skep.jobs.intake import Intake
from skep.jobs.request_sources import Checkpoint, Submission
from skep.model.downloader_kinds import HTTP
from skep.model.fleet.strategy_traits import ANY
from skep.model.jobs.generator_kinds import SITEMAP
from skep.model.jobs.job import Generator, Job
from skep.model.request import NewRequest
from skep.model.run import NewRun, RunSettings
from skep.model.states import ENDED_RUN_STATES, RunState
from skep.model.user_code import CodeLimits
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.store.ports.checkpoints import UnreadPage

#: The limit of the sitemap standard, and room for WARC headers.
SIZE_LIMIT = 50 * 2**20
READ_LIMIT = SIZE_LIMIT + 2**20
#: Levels of nested sitemap indexes, and total number of sitemaps.
NESTING_LIMIT = 4
MAPS_LIMIT = 50_000
RETRIES = 2
LOOK_EVERY = 0.2
#: Limits for parsing one sitemap in its sandbox.
LIMITS = CodeLimits(time=120.0)
_DEPTH = "depth"


class Source(Protocol):
    """Produces batches for a run."""

    def batches(self) -> Batches: ...


def maps_run(run: str, place: int) -> str:
    """The run in which the sitemaps of a generator are fetched."""
    digest = blake2b(f"{run} {place}".encode(), digest_size=10).hexdigest()
    return f"sitemaps-{digest}"


def maps_settings(job: Job) -> RunSettings:
    """The settings of the job, but for whole pages by plain HTTP, from any eligible agent."""
    said = job.run_settings(RunSettings())
    return msgspec.structs.replace(
        said,
        placement=msgspec.structs.replace(said.placement, strategy=ANY.name),
        downloader=HTTP.name,
        code=None,
        curl=(),
        content=None,
        accept_status=(),
        body_limit=max(said.body_limit, SIZE_LIMIT),
        retries=max(said.retries, RETRIES),
    )


def sitemap_request(url: str, body: bytes) -> SandboxRequest:
    """Unpack and parse one sitemap in a sandbox; the code for it is part of Skep."""
    arguments = {"url": url, "body": body}
    return SandboxRequest(SITEMAP.name, arguments=arguments, limits=LIMITS, own=True)


class SitemapSource:
    """One generator of kind `sitemap` in one run."""

    def __init__(
        self,
        run: str,
        job: Job,
        generator: Generator,
        place: int,
        store: Store,
        intake: Intake,
        archive: Archive,
        boxes: CodeSandboxes,
        clock: Clock,
    ) -> None:
        self._run = maps_run(run, place)
        self._job = job
        self._settings = maps_settings(job)
        self._generator = generator
        self._store = store
        self._intake = intake
        self._archive = archive
        self._boxes = boxes
        self._clock = clock
        self._unpack = FirstRecords().read

    async def batches(self) -> Batches:
        """Pages of all sitemaps. Raises GeneratorFailed, also when a user has ended the run in
        which they are fetched: otherwise the generator would retry without end."""
        reading = self._all()
        async with aclosing(reading):
            try:
                async for batch in reading:
                    yield batch
            except Conflict as error:
                raise await self._ended(error) from error

    async def _ended(self, error: Conflict) -> Exception:
        """The same error, unless the run of the sitemaps has ended."""
        run = await self._store.runs.get(self._run)
        if isinstance(error, StaleToken | LostLease) or run.state not in ENDED_RUN_STATES:
            return error
        why = f" ({run.reason})" if run.reason else ""
        return GeneratorFailed(
            f"run {self._run}, which fetches its sitemaps, is {run.state}{why}; start the job again"
        )

    async def _all(self) -> Batches:
        driver = await self._opened()
        while True:
            # Open requests first, then ended ones: in the other order a block that ends in
            # between would be missed.
            left = (await self._store.ledgers.read(self._run)).open
            blocks = await self._store.checkpoints.unread(self._run, 1, [])
            for block in blocks:
                more: list[NewRequest] = []
                for page in block.pages:
                    reading = self._pages(page, more)
                    async with aclosing(reading):
                        async for batch in reading:
                            yield batch
                await self._read(driver, block.id, more)
                _check_first(block.pages)
            if not blocks and not left:
                break
            if not blocks:
                await self._clock.sleep(LOOK_EVERY)
        await self._store.checkpoints.end(
            self._run, driver, RunState.FINISHED, "", self._clock.now()
        )

    async def _opened(self) -> int:
        new = NewRun(self._job.name, self._settings)
        run, _ = await self._intake.open_run(self._run, new)
        if run.state in {RunState.PAUSED, RunState.FAILED}:
            await self._intake.move(self._run, RunState.RUNNING)
        driver = await self._store.checkpoints.take_over(self._run)
        if run.state is not RunState.FINISHED:
            await self._store.requests.revive(self._run)
            root = [_wanted(self._generator.url, 0)]
            source = Submission(self._store)
            await accept_when_available(self._intake, self._clock, source, self._run, root)
        return driver

    async def _read(self, driver: int, block: int, more: list[NewRequest]) -> None:
        accepted = (await self._store.ledgers.read(self._run)).accepted
        fitting = more[: max(MAPS_LIMIT - accepted, 0)]
        source = Checkpoint(self._store, driver, [block])
        await accept_when_available(self._intake, self._clock, source, self._run, fitting)

    async def _pages(self, page: UnreadPage, more: list[NewRequest]) -> Batches:
        depth = int(page.meta.get(_DEPTH, 0))
        if page.state != "done" or not page.length:
            why = page.failure or page.state
            yield [Complaint(f"sitemap {page.uri}: {why}: {page.detail or page.status}")]
            return
        frames = await self._archive.read(page.segment, page.offset, page.length)
        body = await asyncio.to_thread(self._body, frames)
        reading = self._boxes.run(sitemap_request(page.final_uri or page.uri, body))
        async with aclosing(reading):
            try:
                async for batch in reading:
                    yield self._sorted(batch, depth, more)
            except GeneratorFailed as error:
                yield [Complaint(f"sitemap {page.uri}: {error}")]

    def _sorted(self, batch: list[Raw], depth: int, more: list[NewRequest]) -> list[Raw]:
        """Pages, and complaints about sitemaps with an invalid address; valid sitemaps go to
        `more`."""
        pages: list[Raw] = []
        for entry in batch:
            if isinstance(entry, str):
                pages.append(entry)
            elif depth < NESTING_LIMIT:
                wanted = _wanted(str(entry.get("sitemap", "")), depth + 1)
                try:
                    self._intake.check(wanted, self._settings)
                except SkepError as error:
                    detail = error.detail.removeprefix("request 0: ")
                    pages.append(Complaint(f"sitemap {detail}"))
                else:
                    more.append(wanted)
        return [page for page in pages if page]

    def _body(self, frames: bytes) -> bytes:
        return bytes(split_response(self._unpack(frames, READ_LIMIT), READ_LIMIT).body)


def _wanted(url: str, depth: int) -> NewRequest:
    return NewRequest(url, priority=0, meta={_DEPTH: depth})


def _check_first(pages: list[UnreadPage]) -> None:
    """Raises GeneratorFailed: without the first sitemap there are no pages."""
    for page in pages:
        if page.state != "done" and not page.meta.get(_DEPTH):
            why: Any = page.detail or page.status
            raise GeneratorFailed(f"cannot fetch {page.uri}: {page.failure}: {why}")
