"""The book of jobs: documents are checked, kept, changed and struck out here. Centers only.

What is not valid is not stored: it leaves an alert, which people can read, and the caller
is told every fault. The scheduler is asked first, and told after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from skep.errors import Conflict, InvalidJob, UnknownJob
from skep.jobs.definitions.job_check import Checker
from skep.jobs.definitions.struct_decoding import DocumentProblem
from skep.jobs.generators.trial import GeneratorTrials
from skep.model.jobs.job import Job, KeptJob
from skep.runtime.clock import Clock
from skep.store.ports import Store

ALERT = "job_invalid"
SUBJECT_LIMIT = 100
DETAIL_LIMIT = 10_000
#: URIs after which a generator that is tried out has shown enough.
TRIED = 10


class Scheduler(Protocol):
    """What the book and the keeper of runs ask of whoever keeps schedules."""

    async def problems(self, job: Job, beside: Sequence[str] = ()) -> Sequence[tuple[str, str]]:
        """(path, message) of everything that is wrong with the job's schedule among others;
        the jobs `beside` it are about to be kept too."""

    async def followers(self, job: str) -> Sequence[str]:
        """Jobs that run after this one; it cannot be deleted while there are any."""

    async def planned(self, kept: KeptJob) -> None:
        """A job was stored, or deleted. Told again it changes nothing."""

    async def succeeded(self, job: str, run: str) -> None:
        """A run of the job has ended well."""


class JobRepository:
    """Definitions of jobs, over the store."""

    def __init__(
        self,
        store: Store,
        checker: Checker,
        scheduler: Scheduler,
        clock: Clock,
        trials: GeneratorTrials,
        trial_seconds: float,
    ) -> None:
        self._trials = trials
        self._trial_seconds = trial_seconds
        self._store = store
        self._checker = checker
        self._scheduler = scheduler
        self._clock = clock

    async def check(self, document: Any, *, test: bool = True, beside: Sequence[str] = ()) -> Job:
        """The job that a document means; raises InvalidJob with every fault. With `test` code
        of generators that is new or has changed is tried out, when all the rest is right."""
        job, faults = await asyncio.to_thread(self._checker.judge, document)
        if job is not None:
            faults = [
                DocumentProblem(*problem) for problem in await self._scheduler.problems(job, beside)
            ]
        if job is not None and not faults and test:
            known = await self._known(job.name)
            faults = await self._trials.faults(job, known, self._trial_seconds, TRIED)
        if job is None or faults:
            raise InvalidJob("\n".join(map(str, faults)))
        return job

    async def _known(self, name: str) -> Job | None:
        try:
            return (await self._store.jobs.get(name)).job
        except UnknownJob:
            return None

    async def put(
        self,
        name: str,
        document: Any,
        expected: int | None,
        author: str,
        *,
        test: bool = True,
        beside: Sequence[str] = (),
    ) -> tuple[KeptJob, str]:
        """Keep a document: `created`, `changed` or `unchanged`. Raises InvalidJob, after
        leaving an alert, and Conflict when the job is not at `expected` any more."""
        try:
            job = _named(await self.check(document, test=test, beside=beside), name)
        except InvalidJob as error:
            await self.leave_alert(name, author, error)
            raise
        kept, what = await self._store.jobs.save(job, expected, author, self._clock.now())
        await self._scheduler.planned(kept)
        return kept, what

    async def leave_alert(self, name: str, author: str, error: InvalidJob) -> None:
        """A document was refused."""
        detail = f"{author}: {error.detail}"[:DETAIL_LIMIT]
        now = self._clock.now()
        await self._store.alerts.raise_(ALERT, name[:SUBJECT_LIMIT], detail, now)

    async def try_out(
        self, document: Any, *, test: bool = True, beside: Sequence[str] = ()
    ) -> tuple[Job, str, str]:
        """(job, what would happen, the difference) of a document that is only tried."""
        job = await self.check(document, test=test, beside=beside)
        try:
            kept = await self._store.jobs.get(job.name)
        except UnknownJob:
            return job, "created", difference(None, job, ("nothing", "new"))
        if kept.deleted:
            return job, "changed", difference(None, job, ("deleted", "new"))
        told = difference(kept.job, job, (f"revision {kept.revision}", "new"))
        return job, "changed" if told else "unchanged", told

    async def switch(self, name: str, author: str, *, enabled: bool) -> tuple[KeptJob, str]:
        """Turn a job on or off: `changed` or `unchanged`. Runs that are under way go on."""
        kept = await self._store.jobs.get(name)
        if kept.deleted:
            raise Conflict(f"job {name} is deleted; apply it again to bring it back")
        job = msgspec.structs.replace(kept.job, enabled=enabled)
        kept, what = await self._store.jobs.save(job, kept.revision, author, self._clock.now())
        await self._scheduler.planned(kept)
        return kept, what

    async def delete(self, name: str, expected: int | None, author: str) -> KeptJob:
        """Delete softly: runs that are under way go on, nothing new starts."""
        followers = await self._scheduler.followers(name)
        if followers:
            depend = "depends" if len(followers) == 1 else "depend"
            raise Conflict(
                f"cannot delete job {name}: {', '.join(followers)} {depend} on it; "
                "change their schedules first"
            )
        kept = await self._store.jobs.delete(name, expected, author, self._clock.now())
        await self._scheduler.planned(kept)
        return kept

    async def diff(self, name: str, old: int | None, new: int | None) -> str:
        """Between two revisions; without numbers the newest and the one before it."""
        after = new or (await self._store.jobs.get(name)).revision
        before = after - 1 if old is None else old
        newer = (await self._store.jobs.revision(name, after)).job
        older = (await self._store.jobs.revision(name, before)).job if before else None
        return difference(older, newer, (f"revision {before}", f"revision {after}"))


def _named(job: Job, name: str) -> Job:
    if job.name != name:
        raise InvalidJob(
            f"name: is {job.name!r}, but the address says {name!r}; write one name in both"
        )
    return job


def difference(before: Job | None, after: Job | None, names: tuple[str, str]) -> str:
    """As `documents` has it, which is imported at the first change: a center starts without
    YAML."""
    from skep.jobs.definitions import documents

    return documents.difference(before, after, names)
