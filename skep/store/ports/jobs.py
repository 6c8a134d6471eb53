"""The store's contract for jobs. Used by `jobs`; the rules of `store/ports` apply.

Run by centers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from skep.model.jobs.job import Job, JobRevision, JobRun, KeptJob, RunLease
from skep.model.run import RunSettings


class Jobs(Protocol):
    """Job definitions. Only valid ones are passed; every change is a revision."""

    async def save(
        self, job: Job, expected: int | None, author: str, now: float
    ) -> tuple[KeptJob, str]:
        """Store a job: `created`, `changed` or `unchanged`. A deleted one is restored.

        With `expected` it replaces only that revision (0 = there is none yet), else raises
        Conflict; raises UnknownJob when there is no such job.
        """

    async def delete(self, name: str, expected: int | None, author: str, now: float) -> KeptJob:
        """Mark as deleted; its history stays. Raises UnknownJob and Conflict."""

    async def get(self, name: str) -> KeptJob:
        """Returns deleted jobs too, marked as deleted. Raises UnknownJob."""

    async def all(
        self, limit: int, after: str = "", *, deleted: bool = False, enabled: bool | None = None
    ) -> list[KeptJob]:
        """Sorted by name, those after a name; deleted ones only on request."""

    async def revisions(self, name: str, limit: int) -> list[JobRevision]:
        """Newest first. Raises UnknownJob."""

    async def revision(self, name: str, number: int) -> JobRevision:
        """Raises UnknownJob."""


class JobRuns(Protocol):
    """The runs of each job, and the center that supervises each of them."""

    async def begin(self, new: JobRun) -> JobRun:
        """Store it, once per (job, fire_key); returns the stored one."""

    async def get(self, run_id: str) -> JobRun | None:
        """None for a run that no job started."""

    async def fired(self, job: str, fire_key: str) -> JobRun | None:
        """The run that this key started."""

    async def going(
        self, jobs: Sequence[str], *, parts: bool = False, failed: bool = True
    ) -> dict[str, list[str]]:
        """Open runs of those jobs that have any, newest first; without failed runs that wait for a
        user, when `failed` is false. With `parts`, runs of one generator belong to
        `job#generator`, which can be listed in `jobs`, and not to the job."""

    async def of(self, job: str, limit: int, *, only_open: bool = False) -> list[JobRun]:
        """Newest first."""

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[JobRun]:
        """Renew the runs of this center, and take open runs that no center holds (any more) up to
        `limit` in all; returns all that it holds now. Paused and failed runs are not taken. A
        run has one holder at a time, over all centers; taking it raises its `lease`, renewing it
        does not."""

    async def note(self, lease: RunLease, **facts: Any) -> bool:
        """Change `fed`, `starts`, `outcome`, `log` or `open`; False, and nothing changes, when
        another center has taken the run since, or when it is not open."""

    async def holds(self, lease: RunLease) -> bool:
        """Whether this lease is still the newest of an open run."""

    async def adjust(self, run_id: str, settings: RunSettings) -> bool:
        """New settings for a run without requests; False when it has some, or does not exist."""

    async def revise(self, run_id: str, revision: int, settings: RunSettings) -> bool:
        """From now on the run follows that revision of its job, with these settings; False when
        no job started it."""

    async def release(self, holder: str, lease: RunLease | None = None) -> None:
        """Release one run, or all: another center can take it at once. Does nothing when the lease
        is not the newest."""
