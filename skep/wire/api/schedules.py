"""Schedules of jobs, and the outcome of every due time: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.jobs.fire import Fire
from skep.model.jobs.schedule import Schedule
from skep.model.message_bounds import FilterText
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

SHOWN = 5
NAME_LIMIT = 64


class FirePage(msgspec.Struct):
    """A page of the ledger; `before` is a time in seconds, for the next page; `generator` is one
    with its own cron line, instead of the job."""

    #: Maximum number of due times, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: Only due times before this time, in seconds since the epoch.
    before: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    #: A generator with its own schedule; empty = the job's schedule.
    generator: Annotated[str, Meta(max_length=NAME_LIMIT)] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class FireLines(Listed):
    """Newest due times first."""

    items: list[Fire]


class ScheduleLine(msgspec.Struct):
    """One job's schedule and its next due times, as ISO 8601 in its own zone."""

    job: str
    schedule: Schedule
    next: list[str]


class ScheduleLines(Listed):
    """Sorted by job; disabled jobs have no schedule."""

    items: list[ScheduleLine]


class SchedulePage(msgspec.Struct):
    """`job` selects one job; `count` is the number of due times for each."""

    #: Only schedules of this job; empty = all jobs.
    job: Annotated[str, Meta(max_length=NAME_LIMIT)] = ""
    #: Number of due times to show for each schedule.
    count: Annotated[int, Meta(ge=1, le=100)] = SHOWN
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""
    #: Maximum number of schedules, with a filter.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


LIST_SCHEDULES = Route(
    "list_schedules", "GET", "/api/v1/schedules", ScheduleLines, asks=SchedulePage
)
LIST_JOB_FIRES = Route(
    "list_job_fires", "GET", "/api/v1/jobs/{job}/fires", FireLines, asks=FirePage
)


class SchedulesClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: SchedulePage | None = None) -> ScheduleLines:
        """Schedules of all jobs with their next due times."""
        return await self._caller.call(LIST_SCHEDULES, asks=asks)

    async def fires(self, job: str, asks: FirePage | None = None) -> FireLines:
        """What became of a job's due times."""
        return await self._caller.call(LIST_JOB_FIRES, job, asks=asks)
