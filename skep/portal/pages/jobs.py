"""Jobs: the list, with the state of the newest run and the next due time of each."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from skep.model.jobs.job import Job, KeptJob
from skep.model.run import Run
from skep.portal.acts import acts_for
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import given, parts
from skep.portal.show.cells import (
    Cell,
    code_cell,
    empty_cell,
    labels_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row, selected_filter
from skep.portal.show.times import seconds_of
from skep.wire.api.jobs import JobList, JobPage
from skep.wire.api.runs import RunPage, Runs
from skep.wire.api.schedules import ScheduleLines, SchedulePage

COLUMNS = (
    Column("jobs.column_job"),
    Column("jobs.column_state"),
    Column("jobs.column_kind"),
    Column("jobs.column_last"),
    Column("jobs.column_last_at"),
    Column("jobs.column_schedule"),
    Column("jobs.column_next"),
    Column("jobs.column_labels"),
)
OFFERED = (
    ("jobs.offer_enabled", "state:enabled"),
    ("jobs.offer_disabled", "state:disabled"),
    ("jobs.offer_deleted", "state:deleted"),
)
#: Runs that are read to find the newest one of each job on a page.
_RUNS = 500


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("jobs", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call), JobList([]))
    names = [kept.job.name for kept in listed.items]
    runs, lines = await _beside(call, names)
    rows = [
        _row(kept, runs.get(kept.job.name), lines.get(kept.job.name), call.now)
        for kept in listed.items
    ]
    words = ("job", "ls", *((wanted.text,) if wanted.text else ()))
    listing = Listing(
        "/jobs",
        wanted,
        COLUMNS,
        rows,
        listed,
        await acts_for(call, "jobs"),
        field="name",
        empty="jobs",
        command=command(*words),
        api_path="/api/v1/jobs",
        views=await views_for(call, "jobs"),
    )
    return View("pages/jobs.html", {"listing": listing}, watch=("jobs", "runs"))


async def _ask(call: PageCall, wanted: Filter) -> JobList:
    return await call.api.jobs.list(JobPage(PAGE_ROWS, filter=wanted.text, page=wanted.page))


async def _beside(call: PageCall, names: list[str]) -> tuple[dict[str, Run], dict[str, str]]:
    """The newest run and the next due time, by job."""
    if not names:
        return {}, {}
    these = selected_filter("job", names)
    found = await parts(
        runs=call.api.runs.list(RunPage(_RUNS, filter=these)),
        schedules=call.api.schedules.list(SchedulePage(count=1, filter=these, limit=len(names))),
    )
    newest: dict[str, Run] = {}
    for run in given(found["runs"], Runs([])).items:
        newest.setdefault(run.job, run)
    due = given(found["schedules"], ScheduleLines([])).items
    return newest, {line.job: line.next[0] for line in due if line.next}


def _row(kept: KeptJob, run: Run | None, due: str | None, now: float) -> Row:
    job = kept.job
    href = f"/jobs/{quote(job.name, safe='')}"
    last: tuple[Cell, Cell] = (empty_cell(), empty_cell())
    if run is not None:
        last = state_cell(run.state), time_cell(run.changed_at or run.created_at, now)
    word = "deleted" if kept.deleted else "enabled" if job.enabled else "disabled"
    cells = (
        name_cell(job.name, href, job.note[:80]),
        state_cell(word),
        text_cell(kind_of(job)),
        *last,
        code_cell(_schedule(job)),
        time_cell(seconds_of(due), now) if due else empty_cell(),
        labels_cell(job.labels),
    )
    return Row(job.name, cells, href)


def kind_of(job: Job) -> str:
    """As the filter field `kind` says it."""
    if job.app is not None:
        return "app"
    return "spider" if job.spider is not None else "requests"


def _schedule(job: Job) -> str:
    part = job.schedule
    if part is None:
        return ""
    return str(getattr(part, "cron", "") or getattr(part, "every", "") or "")


async def count(call: PageCall) -> NavCount:
    return NavCount((await call.api.jobs.list(JobPage(1, filter=""))).count)


PAGES = (Page("jobs", "/jobs", show, nav=NavPlace("work", 10, "j"), count=count),)
