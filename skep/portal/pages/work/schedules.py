"""Schedules of all jobs with their next due times; and of one job the fire ledger: every due time
and what became of it."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

from skep.model.jobs.fire import Fire
from skep.model.jobs.schedule import Schedule
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.cells import (
    code_cell,
    empty_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.details import pairs_of
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.portal.show.times import moment, seconds_of
from skep.wire.api.schedules import (
    FireLines,
    FirePage,
    ScheduleLine,
    ScheduleLines,
    SchedulePage,
)

COLUMNS = (
    Column("schedules.column_job"),
    Column("schedules.column_schedule"),
    Column("schedules.column_zone"),
    Column("schedules.column_next"),
    Column("schedules.column_then"),
    Column("schedules.column_overlap"),
    Column("schedules.column_catch_up"),
)
FIRE_COLUMNS = (
    Column("schedules.column_due"),
    Column("schedules.column_distance"),
    Column("schedules.column_outcome"),
    Column("schedules.column_run"),
    Column("schedules.column_center"),
    Column("schedules.column_reason"),
)
OFFERED = (
    ("schedules.offer_missed", "state:missed"),
    ("schedules.offer_late", "state:late"),
    ("schedules.offer_skipped", "state:skipped,coalesced"),
    ("schedules.offer_fired", "state:fired"),
)
#: Due times of one job that are shown.
_NEXT = 10


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("schedules", call.query)
    listed, wanted = await read_list(wanted, partial(_ask, call), ScheduleLines([]))
    words = ("schedule", "ls", *((wanted.text,) if wanted.text else ()))
    listing = Listing(
        "/schedules",
        wanted,
        COLUMNS,
        [_row(line, call.now) for line in listed.items],
        listed,
        field="job",
        empty="schedules",
        command=command(*words),
        api_path="/api/v1/schedules",
        views=await views_for(call, "schedules"),
    )
    return View("pages/schedules.html", {"listing": listing}, watch=("jobs",), every=30)


async def _ask(call: PageCall, wanted: Filter) -> ScheduleLines:
    asks = SchedulePage(count=2, filter=wanted.text, page=wanted.page, limit=PAGE_ROWS)
    return await call.api.schedules.list(asks)


def _row(line: ScheduleLine, now: float) -> Row:
    # A generator with its own cron line has the name JOB/GENERATOR.
    href = f"/schedules/{quote(line.job.partition('/')[0], safe='')}"
    due = [time_cell(seconds_of(text), now) for text in line.next[:2]]
    first, then = [*due, empty_cell(), empty_cell()][:2]
    cells = (
        name_cell(line.job, href),
        code_cell(schedule_text(line.schedule)),
        text_cell(line.schedule.zone),
        first,
        then,
        text_cell(line.schedule.overlap),
        text_cell(line.schedule.catch_up),
    )
    return Row(line.job, cells, href)


def schedule_text(schedule: Schedule) -> str:
    """The rule of a schedule as it is written in a document."""
    parts = [schedule.cron] if schedule.cron else []
    if schedule.every is not None:
        parts.append(f"every: {schedule.every}")
    if schedule.after:
        parts.append(f"after: {', '.join(schedule.after)}")
    return "; ".join(parts)


async def show_job(call: PageCall) -> Outcome:
    """The schedule and the fire ledger of one job."""
    view = await call.api.jobs.show(call.path["job"])
    job = view.kept.job
    wanted = Filter.of("fires", call.query, OFFERED)
    fires, wanted = await read_list(wanted, partial(_ask_fires, call, job.name), FireLines([]))
    name = quote(job.name, safe="")
    listing = Listing(
        f"/schedules/{name}",
        wanted,
        FIRE_COLUMNS,
        [_fire_row(fire, call.now) for fire in fires.items],
        fires,
        empty="schedules",
        command=command("schedule", "fires", job.name),
        api_path=f"/api/v1/jobs/{name}/fires",
    )
    data = {
        "job": job,
        "kept": view.kept,
        "listing": listing,
        "schedule": pairs_of(_options(job.schedule)) if job.schedule else [],
        "due": [(text, moment(seconds_of(text), call.now)) for text in view.next[:_NEXT]],
    }
    title = call.texts.plain("schedules.of_job", name=job.name)
    watch = (f"job:{job.name}",)
    return View("pages/schedule.html", data, title=title, watch=watch, every=10)


def _options(schedule: Schedule) -> dict[str, Any]:
    """Every option with its value, defaults too, but none that is not set."""
    found = {name: getattr(schedule, name) for name in schedule.__struct_fields__}
    return {name: value for name, value in found.items() if value not in (None, "", ())}


async def _ask_fires(call: PageCall, name: str, wanted: Filter) -> FireLines:
    asks = FirePage(PAGE_ROWS, filter=wanted.text, page=wanted.page)
    return await call.api.schedules.fires(name, asks)


def _fire_row(fire: Fire, now: float) -> Row:
    run = f"/runs/{quote(fire.run, safe='')}" if fire.run else ""
    cells = (
        code_cell(fire.key),
        time_cell(fire.due_at, now),
        state_cell(fire.state),
        name_cell(fire.run, run),
        text_cell(fire.center, 30),
        text_cell(fire.reason),
    )
    return Row(fire.key, cells, run)


PAGES = (
    Page("schedules", "/schedules", show, nav=NavPlace("work", 15, "t")),
    Page("schedules", "/schedules/{job}", show_job, under="schedules"),
)
