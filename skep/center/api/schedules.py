"""The schedules of jobs and the outcomes of their due times.

Run by centers, from the ledger of fires. It never starts a run.
"""

from __future__ import annotations

from skep.center.api.jobs import JOB_NAMES, job_name
from skep.center.api.listing import asks_list, between, is_one_of, listed
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import InvalidInput, UnknownJob
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
    """The fires of one job."""
    page: FirePage = call.query
    name = job_name(call)
    await call.services.store.jobs.get(name)  # raises UnknownJob
    name = part_of(name, page.generator) if page.generator else name
    if asks_list(call):
        terms = [is_one_of("job", name)]
        if page.before is not None:
            terms.append(between("due", None, page.before))
        items, more = await listed(call, "fires", *terms)
        return FireLines(items, **more)
    found = await call.services.store.fires.of_job(name, page.limit, page.before)
    return FireLines(found)


async def schedules(call: Call) -> ScheduleLines:
    """All schedules with their next due times."""
    page: SchedulePage = call.query
    now = call.services.clock.now()
    if asks_list(call):
        terms = [is_one_of("job", page.job)] if page.job else []
        items, more = await listed(call, "schedules", *terms)
        return ScheduleLines([_line(one, now, page.count) for one in items], **more)
    planned = await call.services.store.fires.planned([page.job] if page.job else None)
    return ScheduleLines([_line(one, now, page.count) for one in planned])


def _line(planned: Planned, now: float, count: int) -> ScheduleLine:
    # A decided due time is past, even while a clock that ran ahead is being corrected.
    after = max(now, planned.decided)
    due = next_fires(planned.schedule, planned.job, after, count)
    return ScheduleLine(planned.job, planned.schedule, due)


ENDPOINTS = (
    Endpoint(
        LIST_SCHEDULES,
        Role.VIEWER,
        schedules,
        "Schedules of all jobs with their next due times",
        errors=(InvalidInput,),
        tag="jobs",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        LIST_JOB_FIRES,
        Role.VIEWER,
        fires,
        "List the fires of a job",
        errors=(InvalidInput, UnknownJob),
        tag="jobs",
        scoped=Scoping.JOB,
        parameters=JOB_NAMES,
        notes="Every due time has one outcome: `fired`, `late`, `skipped`, `coalesced` or "
        "`missed`, with a reason; `due`, `claimed` and `queued` come before the outcome.",
    ),
)
