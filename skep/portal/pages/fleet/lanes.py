"""Lanes: how full they are, since when, what holds requests back, and the dispatch log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

from skep.model.dispatch import DispatchRow
from skep.model.lane import HIGHEST, LOWEST, Lane, lane_of
from skep.model.monitoring.series import LANES as DEPTH
from skep.portal.lists import read_list, views_for
from skep.portal.page import Done, NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, given, parts
from skep.portal.show.acts import Act
from skep.portal.show.cells import (
    code_cell,
    count_cell,
    duration_cell,
    name_cell,
    share_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.charts import ChartShape, Series, chart
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.center import LaneLine, LanesView
from skep.wire.api.dispatches import Dispatches, DispatchOnce, DispatchPage
from skep.wire.api.monitoring.series import Chart, WhichSeries

#: Points of the chart.
POINTS = 60
#: Rows of the log in which the newest of each lane is looked for, and how old they may be.
NEWEST, FRESH = 200, "since:10m"
_LOOKS = {"super": "run", "high": "ok", "mid": "slow", "low": "wait"}
LANES = (
    Column("lanes.column_lane"),
    Column("lanes.column_state"),
    Column("lanes.column_depth", is_number=True),
    Column("lanes.column_limit", is_number=True),
    Column("lanes.column_fill", is_number=True),
    Column("lanes.column_priorities"),
    Column("lanes.column_last"),
    Column("lanes.column_blocked"),
)
LOG = (
    Column("lanes.column_at"),
    Column("lanes.column_kind"),
    Column("lanes.column_run"),
    Column("lanes.column_job"),
    Column("lanes.column_lane"),
    Column("lanes.column_requests", is_number=True),
    Column("lanes.column_blocks", is_number=True),
    Column("lanes.column_took", is_number=True),
    Column("lanes.column_center"),
    Column("lanes.column_reason"),
)
OFFERED = (
    ("lanes.offer_alert", "kind:alert"),
    ("lanes.offer_failed", "kind:failed"),
    ("lanes.offer_hour", "since:1h"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("dispatches", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call), Dispatches([]))
    since, until = call.range.since, call.range.until
    found = await parts(
        lanes=call.api.center.lanes(),
        series=call.api.series.show(
            WhichSeries(DEPTH, "", since, until, int((until - since) / POINTS))
        ),
        newest=call.api.dispatches.list(DispatchPage(NEWEST, filter=FRESH)),
    )
    lanes, series = found["lanes"], found["series"]
    newest = given(found["newest"], Dispatches([])).items
    data = {
        "listing": await _listing(call, listed, wanted),
        "lane_columns": LANES,
        "lanes": lanes if isinstance(lanes, Refused) else _rows(lanes, newest, call.now),
        "chart": series if isinstance(series, Refused) else _chart(series),
        "acts": _acts(call),
    }
    return View("pages/lanes.html", data, every=5)


async def _ask(call: PageCall, wanted: Filter) -> Dispatches:
    page = DispatchPage(PAGE_ROWS, filter=wanted.text, page=wanted.page)
    return await call.api.dispatches.list(page)


async def _listing(call: PageCall, listed: Dispatches, wanted: Filter) -> Listing:
    return Listing(
        "/lanes",
        wanted,
        LOG,
        [_log_row(row, call.now) for row in listed.items],
        listed,
        field="run",
        empty="lanes",
        command=command("dispatch", "--log"),
        api_path="/api/v1/dispatches",
        views=await views_for(call, "dispatches"),
    )


def _rows(found: LanesView, newest: Sequence[DispatchRow], now: float) -> list[Row]:
    return [
        _row(line, [row for row in newest if row.lane == line.lane], now) for line in found.items
    ]


def _row(line: LaneLine, rows: Sequence[DispatchRow], now: float) -> Row:
    """`rows`: those of the log about this lane, newest first."""
    filled = next((row.at for row in rows if row.kind == "success"), None)
    # Only the newest row can say what holds the lane now; an empty lane is not full any more.
    newest = rows[0] if rows else None
    holds = newest is not None and (
        newest.kind == "failed" or (newest.kind == "alert" and line.requests)
    )
    blocked = newest.reason if newest is not None and holds else ""
    full = line.requests >= line.limit
    word = "full" if full else "held" if line.requests else "idle"
    cells = (
        name_cell(line.lane, f"/lanes?filter=lane%3A{quote(line.lane, safe='')}"),
        state_cell(word),
        count_cell(line.requests),
        count_cell(line.limit),
        share_cell(line.requests, line.limit),
        code_cell(_priorities(line.lane)),
        time_cell(filled, now),
        text_cell(blocked),
    )
    return Row(line.lane, cells)


def _priorities(lane: str) -> str:
    known = [str(one) for one in range(HIGHEST, LOWEST + 1) if lane_of(one).label == lane]
    return ", ".join(known)


def _log_row(row: DispatchRow, now: float) -> Row:
    cells = (
        time_cell(row.at, now),
        state_cell(row.kind),
        name_cell(row.run, f"/runs/{quote(row.run, safe='')}" if row.run else "", limit=32),
        name_cell(
            row.job, f"/jobs/{quote(row.job, safe='')}" if row.job != row.run else "", limit=24
        ),
        text_cell(row.lane, 20),
        count_cell(row.size),
        count_cell(row.blocks),
        duration_cell(row.seconds),
        text_cell(row.center, 24),
        text_cell(row.reason),
    )
    return Row(str(row.id), cells)


def _chart(found: Chart) -> ChartShape:
    """The depth of each lane, in the order in which they are drained."""
    points = {line.label: line.points for line in found.lines}
    lines = [Series(lane.label, points.get(lane.label, []), _LOOKS[lane.label]) for lane in Lane]
    return chart(found.since, found.step, lines)


def _acts(call: PageCall) -> list[Act]:
    if not call.may("operator"):
        return []
    return [
        Act(
            "lanes.act_dispatch",
            "/lanes/dispatch",
            command=command("dispatch"),
            api_path="/api/v1/dispatches",
        )
    ]


async def dispatch(call: PageCall) -> Outcome:
    """One round by hand."""
    report = await call.api.dispatches.dispatch(DispatchOnce())
    return Done(call.texts.plain("lanes.said_dispatch", n=report.size), "/lanes")


PAGES = (
    Page("lanes", "/lanes", show, nav=NavPlace("fleet", 20, "i")),
    Page("lanes", "/lanes/dispatch", dispatch, method="POST"),
)
