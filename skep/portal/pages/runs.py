"""Runs: the list."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from skep.model.run import Run
from skep.portal.acts import acts_for
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.cells import labels_cell, name_cell, state_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.runs import RunPage, Runs

COLUMNS = (
    Column("runs.column_run"),
    Column("runs.column_job"),
    Column("runs.column_state"),
    Column("runs.column_reason"),
    Column("runs.column_started"),
    Column("runs.column_changed"),
    Column("runs.column_labels"),
)
OFFERED = (
    ("runs.offer_open", "state:running,paused"),
    ("runs.offer_failed", "state:failed"),
    ("runs.offer_dead", "dead:>0"),
    ("runs.offer_today", "since:24h"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("runs", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call), Runs([]))
    words = ("runs", "ls", *((wanted.text,) if wanted.text else ()))
    listing = Listing(
        "/runs",
        wanted,
        COLUMNS,
        [_row(run, call.now) for run in listed.items],
        listed,
        await acts_for(call, "runs"),
        field="id",
        empty="runs",
        command=command(*words),
        api_path="/api/v1/runs",
        views=await views_for(call, "runs"),
    )
    watch = f"runs:{wanted.text}" if wanted.text and not wanted.problem else "runs"
    return View("pages/runs.html", {"listing": listing}, watch=(watch,))


async def _ask(call: PageCall, wanted: Filter) -> Runs:
    return await call.api.runs.list(RunPage(PAGE_ROWS, filter=wanted.text, page=wanted.page))


def _row(run: Run, now: float) -> Row:
    href = f"/runs/{quote(run.id, safe='')}"
    # A run without a stored job has its own name as job.
    name = run.job if run.job != run.id else ""
    job = f"/jobs/{quote(name, safe='')}" if name else ""
    cells = (
        name_cell(run.id, href),
        name_cell(name, job),
        state_cell(run.state),
        text_cell(run.reason),
        time_cell(run.created_at, now),
        time_cell(run.changed_at or run.created_at, now),
        labels_cell(run.labels),
    )
    return Row(run.id, cells, href)


async def count(call: PageCall) -> NavCount:
    """Open runs."""
    return NavCount((await call.api.runs.list(RunPage(1, filter="state:running,paused"))).count)


PAGES = (Page("runs", "/runs", show, nav=NavPlace("work", 20, "r"), count=count),)
