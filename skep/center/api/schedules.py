"""When jobs run by themselves, and what became of every due time.

Run by centers, from the ledger of fires. Nothing is fired here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.api.jobs import JOB_NAMES, job_name
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput
from skep.jobs.schedule import next_fires
from skep.model.fire import Fire, Planned
from skep.model.generation import part_of
from skep.model.schedule import Schedule

SHOWN = 5
NAME_LIMIT = 64


class FirePage(msgspec.Struct):
    """How much of the ledger; `before` is an instant in seconds, for the next page;
    `generator` is one with a cron line of its own, instead of the job."""

    #: Number of due times at most, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: Only due times before this moment, in seconds since the epoch.
    before: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    #: A generator with a schedule of its own; empty = the job's schedule.
    generator: Annotated[str, Meta(max_length=NAME_LIMIT)] = ""


class FireLines(msgspec.Struct):
    """Newest due times first."""

    items: list[Fire]


class ScheduleLine(msgspec.Struct):
    """One job's schedule and its next due times, as ISO 8601 in its own zone."""

    job: str
    schedule: Schedule
    next: list[str]


class ScheduleLines(msgspec.Struct):
    """By the name of the job; jobs that are off have no schedule."""

    items: list[ScheduleLine]


class SchedulePage(msgspec.Struct):
    """`job` narrows it to one job; `count` is how many due times are shown of each."""

    #: Only schedules of this job; empty = all jobs.
    job: Annotated[str, Meta(max_length=NAME_LIMIT)] = ""
    #: Number of due times to show for each schedule.
    count: Annotated[int, Meta(ge=1, le=100)] = SHOWN


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
        "GET",
        "/api/v1/schedules",
        Role.VIEWER,
        schedules,
        "Schedules of all jobs with their next due times",
        gives=ScheduleLines,
        asks=SchedulePage,
        tag="jobs",
    ),
    Endpoint(
        "GET",
        "/api/v1/jobs/{job}/fires",
        Role.VIEWER,
        fires,
        "What became of a job's due times",
        gives=FireLines,
        asks=FirePage,
        errors=(InvalidInput,),
        tag="jobs",
        parameters=JOB_NAMES,
        notes="Every due time has one outcome: `fired`, `late`, `skipped`, `coalesced` or "
        "`missed`, with a reason; `due`, `claimed` and `queued` are on their way to one.",
    ),
)
