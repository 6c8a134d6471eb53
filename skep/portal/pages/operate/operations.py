"""Operations: bulk acts, newest first, with their progress. One of them is `pages/operation.py`."""

from __future__ import annotations

from skep.portal.page import NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.cells import Cell, code_cell, count_cell, name_cell, state_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.numbers import number
from skep.portal.show.tables import PAGE_ROWS, Column, Row
from skep.wire.api.operations import OperationView, WhichOperations

COLUMNS = (
    Column("operations.column_operation"),
    Column("operations.column_state"),
    Column("operations.column_progress", is_number=True),
    Column("operations.column_failed", is_number=True),
    Column("operations.column_by"),
    Column("operations.column_started"),
    Column("operations.column_ended"),
    Column("operations.column_filter"),
)


async def show(call: PageCall) -> Outcome:
    """`?open=yes` shows those that have not ended; `?before=` is the next page."""
    before, only_open = call.query.get("before", ""), call.query.get("open") == "yes"
    after = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else 0  # noqa: PLR2004
    asks = WhichOperations(PAGE_ROWS, after, only_open)
    found = await call.api.operations.list(asks)
    words = ("op", "ls", *(("--open",) if only_open else ()))
    data = {
        "columns": COLUMNS,
        "rows": [_row(call, one) for one in found.items],
        "next": found.next,
        "first": after == 0,
        "only_open": only_open,
        "command": command(*words),
        "api_path": "/api/v1/operations?open=true" if only_open else "/api/v1/operations",
    }
    return View("pages/operations.html", data, watch=("operations",))


def _row(call: PageCall, one: OperationView) -> Row:
    href = f"/operations/{one.id}"
    failed = sum(result.count for result in one.results if result.outcome == "failed")
    progress = f"{number(one.settled)} / {number(one.matched)}"
    cells = (
        name_cell(_what(call, one), href, f"#{one.id}"),
        state_cell(str(one.state)),
        Cell("number", progress),
        count_cell(failed),
        name_cell(one.creator, limit=30),
        time_cell(one.created_at, call.now),
        time_cell(one.ended_at, call.now),
        code_cell(one.filter, 60),
    )
    return Row(str(one.id), cells, href)


def _what(call: PageCall, one: OperationView) -> str:
    key = f"acts.{one.resource}_{one.act}"
    act = call.texts.plain(key) if call.texts.has(key) else one.act
    return f"{act} · {one.resource}"


async def count(call: PageCall) -> NavCount:
    """Operations that have not ended, up to 100."""
    found = await call.api.operations.list(WhichOperations(100, open=True))
    return NavCount(len(found.items) or None)


PAGES = (Page("operations", "/operations", show, nav=NavPlace("operate", 30, "b"), count=count),)
