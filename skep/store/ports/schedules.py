"""The store's contract for schedules and fires. Used by `jobs`; the rules of `store/ports`
apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.jobs.fire import Fire, Planned, Step


class Fires(Protocol):
    """Schedules, and the ledger of their due times."""

    async def plan(self, planned: Planned) -> bool:
        """Store a job's schedule. False when it is the stored one: then nothing changes, and due
        times that no center has processed stay due."""

    async def unplan(self, job: str, now: float) -> bool:
        """Delete a job's schedule; queued fires are skipped."""

    async def planned(self, jobs: Sequence[str] | None = None) -> list[Planned]:
        """The schedules of these jobs or of all, sorted by name."""

    async def parts(self, job: str) -> list[str]:
        """Names of the schedules of a job's generators: `job#generator`."""

    async def due(self, now: float, limit: int) -> list[Planned]:
        """Schedules that are due to be checked, longest waiting first."""

    async def ahead(self, moment: float, limit: int) -> list[Planned]:
        """Schedules whose due times are decided beyond that time, because a clock was ahead."""

    async def turn_back(self, changes: Sequence[tuple[Planned, Planned]]) -> int:
        """Apply (before, after) pairs of plans after a clock went back. Due times after the new
        `decided` are due again, except those that have a run. Returns how many plans were
        changed; one that was decided or planned meanwhile is left as it is."""

    async def claim(self, steps: Sequence[Step]) -> list[Fire]:
        """Add due times to the ledger; returns those that this call added.

        A step whose job was decided or planned by another center meanwhile does nothing, and a
        due time that is in the ledger already stays as it is.
        """

    async def add(self, fires: Sequence[Fire]) -> int:
        """Add fires that are not due by the clock; known ones are left as they are."""

    async def succeeded(self, job: str, run: str, now: float) -> int:
        """Jobs that follow `job` become DUE, once per run; returns how many."""

    async def pending(self, jobs: Sequence[str]) -> list[Fire]:
        """Fires of these jobs that have no outcome yet, oldest first."""

    async def unattended(self, now: float, patience: float, limit: int) -> list[Fire]:
        """CLAIMED longer ago than `patience` seconds (or in the future, by a wrong clock), then
        DUE, then QUEUED; each oldest first."""

    async def change(self, changes: Sequence[tuple[Fire, Fire]]) -> list[Fire]:
        """(before, after) pairs; returns those that were written.

        A fire whose state or token differs from `before` is left as it is.
        """

    async def of_job(self, job: str, limit: int, before: int | None = None) -> list[Fire]:
        """Newest due times first; with `before`, those before that time."""

    async def forget(self, before: int, limit: int) -> int:
        """Delete outcomes of due times before that time, to keep the ledger bounded: the oldest
        `limit`, and those that were due with the last of them; returns how many."""
