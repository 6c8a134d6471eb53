"""Requests: the explorer over every request of every run, with bulk acts."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from skep.portal.acts import acts_for
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.cells import (
    count_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.requests import RequestLine, RequestPage, WhichRequests

COLUMNS = (
    Column("requests.column_uri"),
    Column("requests.column_state"),
    Column("requests.column_run"),
    Column("requests.column_failures", is_number=True),
    Column("requests.column_priority", is_number=True),
    Column("requests.column_created"),
    Column("requests.column_id"),
)
OFFERED = (
    ("requests.offer_open", "state:open"),
    ("requests.offer_dead", "state:dead"),
    ("requests.offer_retried", "failures:>0"),
    ("requests.offer_slow", "duration:>10s"),
    ("requests.offer_hour", "since:1h"),
)
#: Characters of a URI in the list.
_URI = 52


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("requests", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call), RequestPage([]))
    words = ("request", "ls", *((wanted.text,) if wanted.text else ()))
    listing = Listing(
        "/requests",
        wanted,
        COLUMNS,
        [_row(line, call.now) for line in listed.items],
        listed,
        await acts_for(call, "requests"),
        field="id",
        empty="requests",
        command=command(*words),
        api_path=f"/api/v1/requests?filter={quote(wanted.text, safe='')}",
        views=await views_for(call, "requests"),
    )
    watch = f"requests:{wanted.text}" if wanted.text and not wanted.problem else "requests"
    return View("pages/requests.html", {"listing": listing}, watch=(watch,))


async def _ask(call: PageCall, wanted: Filter) -> RequestPage:
    asks = WhichRequests(limit=PAGE_ROWS, filter=wanted.text, page=wanted.page)
    return await call.api.requests.list(asks)


def _row(line: RequestLine, now: float) -> Row:
    href = f"/requests/{line.id}"
    cells = (
        name_cell(line.uri, href, limit=_URI),
        state_cell(line.state),
        name_cell(line.run, f"/runs/{quote(line.run, safe='')}", limit=28),
        count_cell(line.failures),
        count_cell(line.priority),
        time_cell(line.created_at, now),
        text_cell(str(line.id)),
    )
    return Row(str(line.id), cells, href)


PAGES = (Page("requests", "/requests", show, nav=NavPlace("work", 30, "q")),)
