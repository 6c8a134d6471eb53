"""What `jobs` asks of a store about jobs; the general promises stand in `store/ports`.

Run by centers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from skep.model.jobs.job import Job, JobRevision, JobRun, KeptJob, RunLease
from skep.model.run import RunSettings


class Jobs(Protocol):
    """Definitions. Only what is valid comes here; every change is a revision."""

    async def save(
        self, job: Job, expected: int | None, author: str, now: float
    ) -> tuple[KeptJob, str]:
        """Keep a job: `created`, `changed` or `unchanged`. A deleted one is brought back.

        With `expected` only over that revision (0 = there is none yet), else raises Conflict;
        raises UnknownJob when there is no job to have it.
        """

    async def delete(self, name: str, expected: int | None, author: str, now: float) -> KeptJob:
        """Mark as deleted; its history stays. Raises UnknownJob and Conflict."""

    async def get(self, name: str) -> KeptJob:
        """Also one that is deleted, which says so. Raises UnknownJob."""

    async def all(
        self, limit: int, after: str = "", *, deleted: bool = False, enabled: bool | None = None
    ) -> list[KeptJob]:
        """By name, those after a name; without the deleted ones unless asked for."""

    async def revisions(self, name: str, limit: int) -> list[JobRevision]:
        """Newest first. Raises UnknownJob."""

    async def revision(self, name: str, number: int) -> JobRevision:
        """Raises UnknownJob."""


class JobRuns(Protocol):
    """Which runs belong to which job, and which center sees to each of them."""

    async def begin(self, new: JobRun) -> JobRun:
        """Keep it, once per (job, fire_key); returns the one that is kept."""

    async def get(self, run_id: str) -> JobRun | None:
        """None for a run that no job started."""

    async def fired(self, job: str, fire_key: str) -> JobRun | None:
        """The run that this key started."""

    async def going(
        self, jobs: Sequence[str], *, parts: bool = False, failed: bool = True
    ) -> dict[str, list[str]]:
        """Open runs of those jobs that have any, newest first; without those that have failed
        and wait for a person, when `failed` is false. With `parts` runs of one generator
        belong to `job#generator`, which may be asked for, and not to the job."""

    async def of(self, job: str, limit: int, *, only_open: bool = False) -> list[JobRun]:
        """Newest first."""

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[JobRun]:
        """Renew what this center holds, and take open runs that nobody holds (any more) up
        to `limit` in all; returns everything that it holds now. Runs that are paused or
        failed are not taken. A run has one holder at a time, over all centers; taking it raises
        its `lease`, renewing it does not."""

    async def note(self, lease: RunLease, **facts: Any) -> bool:
        """Change `fed`, `starts`, `outcome`, `log` or `open`; False, and nothing is changed,
        when another center has taken the run since, or when it is not open."""

    async def holds(self, lease: RunLease) -> bool:
        """Whether this lease is still the newest of an open run."""

    async def adjust(self, run_id: str, settings: RunSettings) -> bool:
        """New settings for a run that has no requests yet; False when it has, or is none."""

    async def revise(self, run_id: str, revision: int, settings: RunSettings) -> bool:
        """What of the run is done from now on follows that revision of its job, with these
        settings; False when no job started it."""

    async def release(self, holder: str, lease: RunLease | None = None) -> None:
        """Let go of one run, or of everything: another center may take it at once. Nothing
        happens when the lease is not the newest."""
