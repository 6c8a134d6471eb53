"""Keeps the plans of schedules consistent with the stored jobs. Centers only.

It checks a job before it is stored and plans it after. A center that dies in between leaves a job
whose schedule is not planned: `heal` finds it. Planning twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.errors import UnknownJob
from skep.jobs.definitions.job_dependencies import chain_problems
from skep.jobs.schedule.firing import planned_from
from skep.jobs.schedule.timetable import schedule_problems
from skep.model.jobs.generator_progress import part_of, split_part
from skep.model.jobs.job import Job, KeptJob
from skep.model.jobs.schedule import Schedule, ScheduleProblem
from skep.runtime.clock import Clock
from skep.store.ports.jobs import Jobs
from skep.store.ports.schedules import Fires

#: Jobs of one page when all are compared.
PAGE = 200
#: Rows that one transaction deletes.
FORGET = 5000


class StoreScheduler:
    """Implements `Scheduler` of `jobs/definitions/job_repository.py`."""

    def __init__(self, fires: Fires, jobs: Jobs, clock: Clock) -> None:
        self._fires = fires
        self._jobs = jobs
        self._clock = clock

    async def problems(self, job: Job, beside: Sequence[str] = ()) -> Sequence[ScheduleProblem]:
        """Problems of the job's schedules, alone and together with other jobs."""
        own = _generator_problems(job, self._clock.now())
        return [*own, *await self._job_problems(job, beside)]

    async def _job_problems(self, job: Job, beside: Sequence[str]) -> Sequence[ScheduleProblem]:
        if job.schedule is None:
            return ()
        problems = schedule_problems(job.schedule, job.name, self._clock.now())
        if not job.schedule.after:
            return problems
        others = {one.job: one.schedule.after for one in await self._fires.planned()}
        after = job.schedule.after
        known = [name for name in after if name in beside or await self._exists(name)]
        return [*problems, *chain_problems(job.name, job.schedule, others, known)]

    async def followers(self, job: str) -> list[str]:
        """Jobs that run after this one; while there are any, it cannot be deleted."""
        return [one.job for one in await self._fires.planned() if job in one.schedule.after]

    async def planned(self, kept: KeptJob) -> None:
        """Plan a job that was stored or deleted. Repeating it changes nothing."""
        now, wanted = self._clock.now(), plans_of(kept)
        for name in await self._fires.parts(kept.job.name):
            if name not in wanted:
                await self._fires.unplan(name, now)
        for name, schedule in wanted.items():
            await self._fires.plan(planned_from(name, schedule, now))
        if kept.job.name not in wanted:
            await self._fires.unplan(kept.job.name, now)

    async def succeeded(self, job: str, run: str) -> None:
        """Make the jobs due that run after this one."""
        await self._fires.succeeded(job, run, self._clock.now())

    async def forget(self, seconds: float) -> None:
        """Delete older outcomes of due times in small batches."""
        before = int(self._clock.now() - seconds)
        while await self._fires.forget(before, FORGET) >= FORGET:
            pass

    async def heal(self) -> None:
        """Plan the schedules of jobs whose center died before it could."""
        planned: dict[str, dict[str, Schedule]] = {}
        for one in await self._fires.planned():
            planned.setdefault(split_part(one.job)[0], {})[one.job] = one.schedule
        after = ""
        while page := await self._jobs.all(PAGE, after, deleted=True):
            after = page[-1].job.name
            for kept in page:
                if plans_of(kept) != planned.get(kept.job.name, {}):
                    # Read again: the job may have changed since the page was read.
                    await self.planned(await self._jobs.get(kept.job.name))

    async def _exists(self, name: str) -> bool:
        try:
            return not (await self._jobs.get(name)).deleted
        except UnknownJob:
            return False


def plans_of(kept: KeptJob) -> dict[str, Schedule]:
    """All schedules of a job: its own, and those of generators with a cron line."""
    job = kept.job
    if kept.deleted or not job.enabled:
        return {}
    plans = {} if job.schedule is None else {job.name: job.schedule}
    zone = job.schedule.zone if job.schedule is not None else Schedule().zone
    for part in job.generators:
        if part.cron:
            plans[part_of(job.name, part.name)] = Schedule(cron=part.cron, zone=zone)
    return plans


def _generator_problems(job: Job, now: float) -> list[ScheduleProblem]:
    problems: list[ScheduleProblem] = []
    for place, part in enumerate(job.generators):
        if part.cron:
            own = Schedule(cron=part.cron)
            problems += schedule_problems(
                own, part_of(job.name, part.name), now, f"generators[{place}]"
            )
    return problems
