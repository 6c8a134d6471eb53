"""Failures: groups of dead requests by fingerprint and host, their trend, and acts on a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlencode

from skep.errors import InvalidInput, NotFound
from skep.model.failures.dead_requests import DeadRequest
from skep.model.filter.syntax import quoted_if_needed
from skep.model.monitoring.failure_groups import KeptGroup
from skep.portal.page import Done, NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, part
from skep.portal.show.cells import (
    count_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.charts import ChartShape, Series, chart
from skep.portal.show.commands import command
from skep.portal.show.details import Pair, Tab
from skep.portal.show.numbers import number
from skep.portal.show.tables import Column, Row, filter_url
from skep.wire.api.failures import GroupView, WhichDead
from skep.wire.api.monitoring.failure_groups import GroupChange, WhichGroups

COLUMNS = (
    Column("failures.column_failure"),
    Column("failures.column_host"),
    Column("failures.column_state"),
    Column("failures.column_dead", is_number=True),
    Column("failures.column_died", is_number=True),
    Column("failures.column_first"),
    Column("failures.column_last"),
    Column("failures.column_note"),
)
SAMPLE = (
    Column("failures.column_request"),
    Column("failures.column_run"),
    Column("failures.column_agent"),
    Column("failures.column_last"),
    Column("failures.column_detail"),
)
State = Literal["", "open", "resolved", "ignored"]
STATES: tuple[State, ...] = ("open", "resolved", "ignored", "")
#: What an act makes of a group, and in which states it is offered.
_VERBS = {
    "resolve": frozenset({"open", "ignored"}),
    "ignore": frozenset({"open", "resolved"}),
    "reopen": frozenset({"resolved", "ignored"}),
}
ROWS, SHOWN, COUNTED = 50, 20, 1000
_HOUR, _DAY = 3600, 86_400
_HOURS, _DAYS = 72, 30


async def show(call: PageCall) -> Outcome:
    state = _state(call.query.get("state", "open"))
    host, after = call.query.get("host", "")[:255], call.query.get("after", "")[:400]
    found = await part(call.api.failure_groups.list(WhichGroups(state, host, "", ROWS, after)))
    rows, following = [], ""
    if not isinstance(found, Refused):
        rows = [_row(group, call.now) for group in found.items]
        following = _path(state, host, found.next) if found.next else ""
    words = ("failures", "groups", *(("--state", state) if state else ()))
    data = {
        "refused_list": found if isinstance(found, Refused) else None,
        "columns": COLUMNS,
        "rows": rows,
        "tabs": [
            Tab(f"failures.tab_{one or 'all'}", _path(one, host), one == state) for one in STATES
        ],
        "state": state,
        "host": host,
        "next_path": following,
        "first_path": _path(state, host) if after else "",
        "clear_path": _path(state, ""),
        "command": command(*words),
        "api_path": f"/api/v1/failure-groups?{urlencode({'state': state})}",
    }
    return View("pages/failures.html", data, watch=("failures",))


def _state(text: str) -> State:
    """`any` in the URL is every state; what is not known is the default."""
    found = "" if text == "any" else text
    return found if found in STATES else "open"


def _path(state: str, host: str, after: str = "") -> str:
    given = {"state": "" if state == "open" else state or "any", "host": host, "after": after}
    query = urlencode({name: value for name, value in given.items() if value})
    return f"/failures?{query}" if query else "/failures"


def _row(group: KeptGroup, now: float) -> Row:
    href = f"/failures/{quote(group.group, safe='')}"
    cells = (
        name_cell(_kind(group), href, group.text[:200]),
        name_cell(group.host, limit=32),
        state_cell(group.state),
        count_cell(group.dead, filter_url("/requests", _dead(group))),
        count_cell(group.died),
        time_cell(group.first_at, now),
        time_cell(group.last_at, now),
        text_cell(group.note),
    )
    return Row(group.group, cells, href)


def _kind(group: KeptGroup) -> str:
    return f"{group.failure} {group.status}" if group.status else group.failure


def _dead(group: KeptGroup) -> str:
    return f"state:dead group:{quoted_if_needed(group.group)}"


async def show_group(call: PageCall) -> Outcome:
    name = call.path["group"]
    details = await _details(call, name)
    group = details.group
    sample = await part(call.api.failures.show(name, WhichDead(limit=SHOWN)))
    data: dict[str, Any] = {
        "group": group,
        "kind": _kind(group),
        "figures": _figures(group),
        "acts": acts_of(group, call),
        "retry_filter": f"group:{quoted_if_needed(name)}",
        "may_retry": call.may("operator") and group.dead > 0,
        "charts_found": [
            ("failures.by_hour", _trend(call, details.history.hours, _HOUR, _HOURS)),
            ("failures.by_day", _trend(call, details.history.days, _DAY, _DAYS)),
        ],
        "columns": SAMPLE,
        "sample": sample if isinstance(sample, Refused) else _sample(sample, call.now),
        "dead_url": filter_url("/requests", _dead(group)),
        "command": command("failures", "show", name),
        "act_commands": {verb: command("failures", verb, name) for verb in _VERBS},
        "path": f"/failures/{quote(name, safe='')}",
    }
    return View("pages/failure.html", data, title=_kind(group), watch=("failures",), every=10)


async def _details(call: PageCall, name: str) -> Any:
    try:
        return await call.api.failure_groups.show(name)
    except InvalidInput as error:
        raise NotFound(f"there is no failure group {name[:80]!r}") from error


def _figures(group: KeptGroup) -> list[Pair]:
    return [
        Pair("failures.column_dead", number(group.dead), attention=group.dead > 0),
        Pair("failures.column_died", number(group.died)),
        Pair("failures.reopened", number(group.reopened)),
    ]


def acts_of(group: KeptGroup, call: PageCall) -> list[str]:
    """The verbs that its state allows, for a caller who may act."""
    if not call.may("operator"):
        return []
    return [verb for verb, states in _VERBS.items() if group.state in states]


def _trend(call: PageCall, counts: Mapping[int, int], step: int, count: int) -> ChartShape:
    """Deaths in each of the last `count` hours or days."""
    last = int(call.now) // step * step
    since = last - (count - 1) * step
    points = [float(counts.get(since + at * step, 0)) for at in range(count)]
    label = call.texts.plain("failures.died_line")
    return chart(since, step, [Series(label, points, "bad")])


def _sample(view: GroupView, now: float) -> list[Row]:
    return [_sample_row(one, now) for one in view.items]


def _sample_row(one: DeadRequest, now: float) -> Row:
    cells = (
        name_cell(one.uri, f"/requests/{one.id}", limit=56),
        name_cell(one.run, f"/runs/{quote(one.run, safe='')}", limit=28),
        name_cell(one.agent, f"/agents/{quote(one.agent, safe='')}" if one.agent else "", limit=24),
        time_cell(one.died_at, now),
        text_cell(one.detail, 200),
    )
    return Row(str(one.id), cells, f"/requests/{one.id}")


async def change(call: PageCall) -> Outcome:
    """Resolve, ignore or reopen; an empty note leaves the one there is."""
    name, verb = call.path["group"], call.field("verb")
    note = call.field("note").strip() or None
    if note is not None and len(note) > 500:  # noqa: PLR2004
        raise InvalidInput(call.texts.plain("failures.long_note"))
    groups = call.api.failure_groups
    acts = {"resolve": groups.resolve, "ignore": groups.ignore, "reopen": groups.reopen}
    if verb not in acts:
        raise InvalidInput(f"{verb[:50]!r} is not an act on a failure group")
    kept = await acts[verb](name, GroupChange(note))
    said = call.texts.plain("failures.said", state=call.texts.plain(f"states.{kept.state}"))
    return Done(said, f"/failures/{quote(name, safe='')}")


async def count(call: PageCall) -> NavCount:
    """Open groups, counted up to a limit."""
    found = await call.api.failure_groups.list(WhichGroups("open", limit=COUNTED))
    return NavCount(len(found.items), "bad")


PAGES = (
    Page("failures", "/failures", show, nav=NavPlace("work", 40, "f"), count=count),
    Page("failures", "/failures/{group}", show_group, under="failures"),
    Page("failures", "/failures/{group}", change, method="POST", under="failures"),
)
