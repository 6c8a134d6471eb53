"""Runs of jobs: started, once per key, fed, paused, continued and stopped. Centers only.

A start is one row in the store; everything after it can be done again by any center, so a
center that dies over it leaves nothing half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import msgspec

from skep.errors import Conflict, InvalidInput, SkepError
from skep.jobs.definition import inside
from skep.jobs.intake import Intake, NewRun
from skep.jobs.validate import Offered
from skep.model.job import Generator, Job, JobRun, KeptJob
from skep.model.request import NewRequest
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.runtime.clock import Clock
from skep.runtime.ids import new_id
from skep.store.ports import Store

BATCH = 5000
KEY_LIMIT = 150
#: For putting the requests in; then any center may see to it.
START_SECONDS = 30.0
#: Generators that this version can run.
PLAIN = ("list", "file")

_line = msgspec.json.Decoder(NewRequest)


class JobStarts:
    """Starts runs of jobs and says what becomes of them."""

    def __init__(
        self,
        center: str,
        store: Store,
        intake: Intake,
        folder: Path,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._center = center
        self._store = store
        self._intake = intake
        self._folder = folder
        self._clock = clock
        self._rng = rng

    async def start_run(self, job: str, fire_key: str = "") -> str:
        """The id of the run that this key started, now or before; "" is a new key.

        Raises UnknownJob, and Conflict for a job that is off or deleted.
        """
        if len(fire_key) > KEY_LIMIT or not fire_key.isprintable():
            raise InvalidInput(f"a key has at most {KEY_LIMIT} printable characters")
        kept = await self._store.jobs.get(job)
        now = self._clock.now()
        run = new_id(job, now, self._rng)
        if fire_key and (known := await self._store.job_runs.fired(job, fire_key)):
            return known.run
        _check_startable(kept)
        # Held from the first moment, so that no other center feeds it at the same time.
        begun = await self._store.job_runs.begin(
            JobRun(
                run,
                job,
                fire_key or f"once {run}",
                kept.revision,
                now,
                holder=self._center,
                held_until=now + START_SECONDS,
            )
        )
        if begun.run == run:
            await self.prepare(begun)
        return begun.run

    async def prepare(self, begun: JobRun) -> None:
        """Open the run and put its requests in; told again it changes nothing."""
        job = (await self._store.jobs.revision(begun.job, begun.revision)).job
        try:
            new = NewRun(job.name, job.run_settings(RunSettings()))
            await self._intake.open_run(begun.run, new)
            if not begun.fed and job.spider is None:
                await self._feed(begun.run, job)
        except InvalidInput as error:
            await self._give_up(begun, error)
            raise
        await self._store.job_runs.note(begun.run, begun.holder, fed=True)

    async def _feed(self, run: str, job: Job) -> None:
        offered = iter(await asyncio.to_thread(self._offered, job))
        while batch := list(islice(offered, BATCH)):
            await self._intake.accept(run, batch)

    def _offered(self, job: Job) -> list[Offered]:
        """Everything that the job asks for by itself."""
        offered: list[Offered] = list(job.requests)
        for generator in job.generators:
            if generator.kind not in PLAIN:
                raise InvalidInput(f"generators of kind {generator.kind} cannot be run here yet")
            offered += (_with_priority(one, generator) for one in self._yielded(generator))
        return [_numbered(one, number) for number, one in enumerate(offered)]

    def _yielded(self, generator: Generator) -> Iterator[Offered]:
        if generator.kind == "list":
            yield from generator.uris
            return
        try:
            text = inside(self._folder, generator.path).read_text()
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cannot read {generator.path!r}: {error}") from error
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                yield _request(line.strip(), f"{generator.path}:{number}")

    async def _give_up(self, begun: JobRun, error: SkepError) -> None:
        facts = {"open": False, "outcome": f"could not start: {error.detail}"}
        await self._store.job_runs.note(begun.run, begun.holder, **facts)
        try:
            await self._intake.move(begun.run, RunState.CANCELLED, error.detail)
        except SkepError:  # it was never opened
            return

    async def driven(self, run: Run, spiders: RunSettings) -> Run:
        """A spider's process has come: what its class says counts where the job says nothing."""
        kept = await self._store.job_runs.get(run.id)
        if kept is None:
            return run
        job = (await self._store.jobs.revision(kept.job, kept.revision)).job
        if not await self._store.job_runs.adjust(run.id, job.run_settings(spiders)):
            return run
        return await self._store.runs.get(run.id)

    # -- what people and schedules ask about runs

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        """Runs that have not ended, of those jobs that have any, newest first."""
        return await self._store.job_runs.going(jobs)

    async def stop_run(self, run: str, reason: str = "") -> None:
        """Cancel it; nothing happens when it has ended."""
        try:
            await self._intake.move(run, RunState.CANCELLED, reason)
        except Conflict:
            return

    async def pause(self, job: str) -> list[Run]:
        """Every run that is running."""
        return await self._moved(job, (RunState.RUNNING,), RunState.PAUSED)

    async def resume(self, job: str) -> list[Run]:
        """Every run that rests."""
        return await self._moved(job, RESTING, RunState.RUNNING)

    async def stop(self, job: str) -> list[Run]:
        """Every run that has not ended."""
        return await self._moved(job, (RunState.RUNNING, *RESTING), RunState.CANCELLED)

    async def _moved(self, job: str, wanted: Sequence[RunState], to: RunState) -> list[Run]:
        """Raises UnknownJob, and Conflict when there is nothing to move."""
        await self._store.jobs.get(job)
        reason = "" if to is RunState.RUNNING else f"{to} by message to job {job}"
        moved: list[Run] = []
        for name in (await self.going([job])).get(job, []):
            run = await self._store.runs.get(name)
            if run.state in wanted:
                moved.append(await self._intake.move(name, to, reason))
        if not moved:
            states = " or ".join(wanted)
            raise Conflict(f"job {job} has no run that is {states}; see `skep job show {job}`")
        return moved


ENDED = frozenset({RunState.FINISHED, RunState.CANCELLED})
#: Until a person says so, nothing is done for them.
RESTING = (RunState.PAUSED, RunState.FAILED)


def _check_startable(kept: KeptJob) -> None:
    name = kept.job.name
    if kept.deleted:
        raise Conflict(f"job {name} is deleted; apply it again to bring it back")
    if not kept.job.enabled:
        raise Conflict(f"job {name} is switched off; set `enabled: true` first")


def _numbered(offered: Offered, number: int) -> Offered:
    """`again` means another time than the last; told twice by us it is still one request."""
    if isinstance(offered, str) or not offered.again:
        return offered
    return msgspec.structs.replace(offered, again=False, fingerprint=f"again {number}")


def _with_priority(offered: Offered, generator: Generator) -> Offered:
    if generator.priority is None:
        return offered
    if isinstance(offered, str):
        return NewRequest(offered, priority=generator.priority)
    if offered.priority is not None:
        return offered
    return msgspec.structs.replace(offered, priority=generator.priority)


def _request(line: str, where: str) -> Offered:
    if not line.startswith("{"):
        return line
    try:
        return _line.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{where}: {error}") from error
