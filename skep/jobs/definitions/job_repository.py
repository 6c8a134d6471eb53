"""The job repository: checks, stores, changes and deletes job documents. Centers only.

An invalid document is not stored: it raises an alert, and the caller gets all problems. The
scheduler checks a job before it is stored and is notified after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from skep.errors import Conflict, InvalidInput, InvalidJob, UnknownJob
from skep.jobs.definitions.job_check import Checker
from skep.jobs.definitions.struct_decoding import DocumentProblem
from skep.jobs.generators.trial import GeneratorTrials
from skep.model.jobs.job import Job, KeptJob
from skep.model.labels import relabelled
from skep.runtime.clock import Clock
from skep.store.ports import Store

ALERT = "job_invalid"
SUBJECT_LIMIT = 100
DETAIL_LIMIT = 10_000
#: URIs after which the trial of a generator ends.
TRIED = 10


class Scheduler(Protocol):
    """The scheduler, as the job repository and the run supervisor use it."""

    async def problems(self, job: Job, beside: Sequence[str] = ()) -> Sequence[tuple[str, str]]:
        """(path, message) of all problems of the job's schedule, alone and together with others;
        the jobs `beside` it are about to be stored too."""

    async def followers(self, job: str) -> Sequence[str]:
        """Jobs that run after this one; while there are any, it cannot be deleted."""

    async def planned(self, kept: KeptJob) -> None:
        """Plan a job that was stored or deleted. Repeating it changes nothing."""

    async def succeeded(self, job: str, run: str) -> None:
        """Notify that a run of the job has finished successfully."""


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
        """The job of a document; raises InvalidJob with all problems. With `test`, generators with
        new or changed code are tried out if the rest is valid."""
        job, problems = await asyncio.to_thread(self._checker.judge, document)
        if job is not None:
            problems = [
                DocumentProblem(*problem) for problem in await self._scheduler.problems(job, beside)
            ]
        if job is not None and not problems and test:
            known = await self._known(job.name)
            problems = await self._trials.problems(job, known, self._trial_seconds, TRIED)
        if job is None or problems:
            raise InvalidJob("\n".join(map(str, problems)))
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
        """Store a document: `created`, `changed` or `unchanged`. Raises InvalidJob, with an alert,
        and Conflict when the job is no longer at revision `expected`."""
        try:
            job = _named(await self.check(document, test=test, beside=beside), name)
        except InvalidJob as error:
            await self.leave_alert(name, author, error)
            raise
        kept, what = await self._store.jobs.save(job, expected, author, self._clock.now())
        await self._scheduler.planned(kept)
        return kept, what

    async def leave_alert(self, name: str, author: str, error: InvalidJob) -> None:
        """Raise an alert about a refused document."""
        detail = f"{author}: {error.detail}"[:DETAIL_LIMIT]
        now = self._clock.now()
        await self._store.alerts.raise_(ALERT, name[:SUBJECT_LIMIT], detail, now)

    async def try_out(
        self, document: Any, *, test: bool = True, beside: Sequence[str] = ()
    ) -> tuple[Job, str, str]:
        """(job, what would happen, the difference) for a document that is not stored."""
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
        """Enable or disable a job: `changed` or `unchanged`. Active runs continue."""
        kept = await self._store.jobs.get(name)
        if kept.deleted:
            raise Conflict(f"job {name} is deleted; apply it again to restore it")
        job = msgspec.structs.replace(kept.job, enabled=enabled)
        kept, what = await self._store.jobs.save(job, kept.revision, author, self._clock.now())
        await self._scheduler.planned(kept)
        return kept, what

    async def relabel(
        self, name: str, author: str, add: Mapping[str, str], remove: Collection[str]
    ) -> bool:
        """Add and remove labels of a job, and of the runs that it starts from now on; False when
        nothing changed. Raises InvalidInput for too many labels."""
        kept = await self._store.jobs.get(name)
        if kept.deleted:
            raise Conflict(f"job {name} is deleted; apply it again to restore it")
        try:
            labels = relabelled(kept.job.labels, add, remove)
        except ValueError as error:
            raise InvalidInput(f"job {name}: {error}") from None
        job = msgspec.structs.replace(kept.job, labels=labels)
        kept, what = await self._store.jobs.save(job, kept.revision, author, self._clock.now())
        await self._scheduler.planned(kept)
        return what != "unchanged"

    async def delete(self, name: str, expected: int | None, author: str) -> KeptJob:
        """Mark as deleted: active runs continue, no new run starts."""
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
        """The difference of two revisions; by default the newest and the one before it."""
        after = new or (await self._store.jobs.get(name)).revision
        before = after - 1 if old is None else old
        newer = (await self._store.jobs.revision(name, after)).job
        older = (await self._store.jobs.revision(name, before)).job if before else None
        return difference(older, newer, (f"revision {before}", f"revision {after}"))


def _named(job: Job, name: str) -> Job:
    if job.name != name:
        raise InvalidJob(
            f"name: is {job.name!r}, but the URL has {name!r}; use the same name in both"
        )
    return job


def difference(before: Job | None, after: Job | None, names: tuple[str, str]) -> str:
    """As `documents.difference`, imported at the first use: a center starts without importing
    YAML."""
    from skep.model.jobs import documents

    return documents.difference(before, after, names)
