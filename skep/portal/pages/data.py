"""Data: the runs to choose from, and the items of one run with search, columns and export.

The API gives items in the order in which the run stored them; a search looks through a bounded
number of them at a time and says how far it came.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from skep.model.run import Run
from skep.portal.lists import read_list
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.cells import Cell, name_cell, state_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.results import Item, ItemPage
from skep.wire.api.runs import RunPage, Runs

COLUMNS = (
    Column("data.column_run"),
    Column("data.column_job"),
    Column("data.column_state"),
    Column("data.column_started"),
)
#: Items that are looked at for one page of a search.
SEARCHED, BATCH = 10_000, 2000
#: Columns that are shown without a choice, and characters of a value.
SHOWN, VALUE = 6, 80
_LONGEST = 200


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("runs", call.query)
    listed, wanted = await read_list(wanted, partial(_ask, call), Runs([]))
    listing = Listing(
        "/data",
        wanted,
        COLUMNS,
        [_run_row(run, call.now) for run in listed.items],
        listed,
        field="id",
        empty="data",
        command=command("data", "export", "RUN"),
        api_path="/api/v1/runs/RUN/items",
    )
    return View("pages/data.html", {"listing": listing}, watch=("runs",))


async def _ask(call: PageCall, wanted: Filter) -> Runs:
    return await call.api.runs.list(RunPage(PAGE_ROWS, filter=wanted.text, page=wanted.page))


def _run_row(run: Run, now: float) -> Row:
    href = f"/data/{quote(run.id, safe='')}"
    job = run.job if run.job != run.id else ""
    cells = (
        name_cell(run.id, href),
        name_cell(job, f"/jobs/{quote(job, safe='')}" if job else ""),
        state_cell(run.state),
        time_cell(run.created_at, now),
    )
    return Row(run.id, cells, href)


@dataclass(slots=True)
class _Found:
    """A page of items: those that match, how many were looked at, and where it goes on."""

    items: list[Item]
    looked: int
    #: Id of the last item that was looked at; 0 = there are no more.
    next: int
    fields: list[str]


async def show_items(call: PageCall) -> Outcome:
    name = call.path["run"]
    view = await call.api.runs.show(name)
    search = call.query.get("search", "")[:_LONGEST]
    found = await _search(call, name, search, _position(call.query.get("after", "")))
    chosen = _chosen(call, found.fields)
    rows = [_row(item, chosen) for item in found.items]
    data = {
        "run": view.run,
        "search": search,
        "found": found,
        "columns": _headings(chosen, rows),
        "rows": rows,
        "fields": [(one, one in chosen) for one in found.fields],
        "chosen": chosen if call.request.query_params.getlist("column") else [],
        "path": f"/data/{quote(name, safe='')}",
        "next_path": _next_path(call, name, found),
        "first_path": _page_path(call, name, 0) if "after" in call.query else "",
        "exports": _exports(call, name, chosen),
        "command": command("data", "export", name, "-o", "items.jsonl"),
    }
    title = call.texts.plain("data.of_run", name=name)
    return View("pages/items.html", data, title=title, watch=(f"run:{name}",))


def _position(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else 0  # noqa: PLR2004


async def _search(call: PageCall, run: str, search: str, after: int) -> _Found:
    """The next items, or with a search the next ones that hold the text."""
    found = _Found([], 0, after, [])
    fields: dict[str, None] = {}
    needle = search.casefold()
    while found.looked < SEARCHED:
        limit = BATCH if needle else PAGE_ROWS
        page = await call.api.results.items(run, ItemPage(found.next, limit))
        for item in page.items:
            found.looked, found.next = found.looked + 1, item.id
            fields.update(dict.fromkeys(item.data))
            if not needle or needle in _json(item.data).casefold():
                found.items.append(item)
            if len(found.items) == PAGE_ROWS:
                break
        if len(page.items) < limit and len(found.items) < PAGE_ROWS:
            found.next = 0
        if not found.next or len(found.items) == PAGE_ROWS:
            break
    found.fields = list(fields)[:_LONGEST]
    return found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _chosen(call: PageCall, fields: Sequence[str]) -> list[str]:
    asked = call.request.query_params.getlist("column")
    known = [one for one in fields if one in set(asked)]
    return known or list(fields[:SHOWN])


@dataclass(frozen=True, slots=True)
class _Heading:
    """A column: a field of the items, or with `key` a text of the catalogue."""

    name: str
    key: str = ""
    is_number: bool = False


def _headings(chosen: Sequence[str], rows: Sequence[Row]) -> list[_Heading]:
    """A column of numbers is aligned as its first value."""
    first = rows[0].cells[1:] if rows else ()
    numbers = [cell.is_number for cell in first] or [False] * len(chosen)
    fields = zip(chosen, numbers, strict=True)
    return [_Heading("", "data.column_request"), *[_Heading(one, "", n) for one, n in fields]]


def _row(item: Item, columns: Sequence[str]) -> Row:
    href = f"/requests/{item.request}" if item.request else ""
    cells: list[Cell] = [name_cell(str(item.request), href)]
    cells += [_value_cell(item.data.get(one)) for one in columns]
    return Row(str(item.id), cells)


def _value_cell(value: Any) -> Cell:
    if value is None:
        return text_cell("")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return text_cell(_json(value), VALUE)
    if isinstance(value, str):
        return text_cell(value, VALUE)
    return Cell("number", _json(value)[:VALUE])


def _page_path(call: PageCall, run: str, after: int) -> str:
    kept = [(key, one) for key, one in call.request.query_params.multi_items() if key != "after"]
    pairs = [(key, one[:_LONGEST]) for key, one in kept if key in {"search", "column"}]
    query = urlencode([*pairs, *([("after", str(after))] if after else [])])
    return f"/data/{quote(run, safe='')}{'?' if query else ''}{query}"


def _next_path(call: PageCall, run: str, found: _Found) -> str:
    return _page_path(call, run, found.next) if found.next else ""


def _exports(call: PageCall, run: str, chosen: Sequence[str]) -> list[tuple[str, str]]:
    """Downloads by the API: text key and path."""
    base = f"/api/v1/runs/{quote(run, safe='')}/items/export"
    found = [
        ("data.export_jsonl", f"{base}?format=jsonl"),
        ("data.export_csv", f"{base}?format=csv"),
    ]
    if call.request.query_params.getlist("column") and not any("," in one for one in chosen):
        query = urlencode({"format": "csv", "fields": ",".join(chosen)})
        found.append(("data.export_columns", f"{base}?{query}"))
    return found


PAGES = (
    Page("data", "/data", show, nav=NavPlace("work", 50, "d")),
    Page("data", "/data/{run}", show_items, under="data"),
)
