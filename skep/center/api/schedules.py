"""When jobs run by themselves, and what became of every due time.

Run by centers, from the ledger of fires. Nothing is fired here.
"""

from __future__ import annotations

from skep.center.api.jobs import JOB_NAMES, job_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import InvalidInput
from skep.jobs.schedule.timetable import next_fires
from skep.model.jobs.fire import Planned
from skep.model.jobs.generator_progress import part_of
from skep.wire.api.schedules import (
    LIST_JOB_FIRES,
    LIST_SCHEDULES,
    FireLines,
    FirePage,
    ScheduleLine,
    ScheduleLines,
    SchedulePage,
)


async def fires(call: Call) -> FireLines:
    """The ledger of one job."""
    page: FirePage = call.query
    name = job_name(call)
    name = part_of(name, page.generator) if page.generator else name
    found = await call.services.store.fires.of_job(name, page.limit, page.before)
    return FireLines(found)


async def schedules(call: Call) -> ScheduleLines:
    """What is planned, and when it comes due next."""
    page: SchedulePage = call.query
    planned = await call.services.store.fires.planned([page.job] if page.job else None)
    now = call.services.clock.now()
    return ScheduleLines([_line(one, now, page.count) for one in planned])


def _line(planned: Planned, now: float, count: int) -> ScheduleLine:
    # What is decided is past, also while a clock that ran ahead is being put right.
    after = max(now, planned.decided)
    due = next_fires(planned.schedule, planned.job, after, count)
    return ScheduleLine(planned.job, planned.schedule, due)


ENDPOINTS = (
    Endpoint(
        LIST_SCHEDULES,
        Role.VIEWER,
        schedules,
        "Schedules of all jobs with their next due times",
        tag="jobs",
    ),
    Endpoint(
        LIST_JOB_FIRES,
        Role.VIEWER,
        fires,
        "What became of a job's due times",
        errors=(InvalidInput,),
        tag="jobs",
        parameters=JOB_NAMES,
        notes="Every due time has one outcome: `fired`, `late`, `skipped`, `coalesced` or "
        "`missed`, with a reason; `due`, `claimed` and `queued` are on their way to one.",
    ),
)
