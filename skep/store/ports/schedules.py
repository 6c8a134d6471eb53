"""What `jobs` asks of a store about schedules and fires; the general promises stand in
`store/ports`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.jobs.fire import Fire, Planned, Step


class Fires(Protocol):
    """Schedules, and the ledger of their due times."""

    async def plan(self, planned: Planned) -> bool:
        """Keep a job's schedule. False when it is the one that is kept already: then nothing
        changes, and due times that nobody has looked at yet stay due."""

    async def unplan(self, job: str, now: float) -> bool:
        """Take a job's schedule away; what waited in its queue is skipped."""

    async def planned(self, jobs: Sequence[str] | None = None) -> list[Planned]:
        """Of these jobs or of all, by name."""

    async def parts(self, job: str) -> list[str]:
        """Names of the schedules of a job's generators: `job#generator`."""

    async def due(self, now: float, limit: int) -> list[Planned]:
        """Whose time to be looked at has come, longest waiting first."""

    async def ahead(self, moment: float, limit: int) -> list[Planned]:
        """Schedules whose due times are decided beyond that moment: a clock was ahead."""

    async def turn_back(self, changes: Sequence[tuple[Planned, Planned]]) -> int:
        """(before, after) pairs of plans that follow a clock back. Due times after the new
        `decided` are due again, except those that have a run. Returns how many plans were
        changed; one that was decided or planned meanwhile is left as it is."""

    async def claim(self, steps: Sequence[Step]) -> list[Fire]:
        """Put due times into the ledger; returns those that this call put there.

        A step whose job was decided or planned by somebody else meanwhile does nothing,
        and a due time that is in the ledger already stays as it is.
        """

    async def add(self, fires: Sequence[Fire]) -> int:
        """Fires that no clock asked for; those that are there already are left as they are."""

    async def succeeded(self, job: str, run: str, now: float) -> int:
        """Jobs that follow `job` become DUE, once per run; returns how many."""

    async def pending(self, jobs: Sequence[str]) -> list[Fire]:
        """Fires of these jobs that have no outcome yet, oldest first."""

    async def unattended(self, now: float, patience: float, limit: int) -> list[Fire]:
        """CLAIMED longer ago than `patience` (or in a future that a clock invented), then
        DUE, then QUEUED; each oldest first."""

    async def change(self, changes: Sequence[tuple[Fire, Fire]]) -> list[Fire]:
        """(before, after) pairs; returns those that were written.

        A fire whose state or token is not that of `before` any more is left as it is.
        """

    async def of_job(self, job: str, limit: int, before: int | None = None) -> list[Fire]:
        """Newest due times first; with `before`, those before that instant."""

    async def forget(self, before: int, limit: int) -> int:
        """Keep the ledger bounded: outcomes of due times before that instant go, the oldest
        `limit` and those that were due with the last of them; returns how many."""
