"""The overview: is everything accounted for, what fails, what waits and why, what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from skep.model.monitoring.failure_groups import KeptGroup
from skep.model.run import Run
from skep.portal.overview_cards import asked_series, cards_of
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, given, parts
from skep.portal.show.cells import (
    Cell,
    count_cell,
    empty_cell,
    name_cell,
    rate_cell,
    state_cell,
    text_cell,
)
from skep.portal.show.ledgers import LedgerBar, ledger_bar
from skep.portal.show.tables import Column, Row
from skep.portal.show.times import Moment, clock_time, moment, seconds_of
from skep.wire.api.agents import AgentPage
from skep.wire.api.center import AlertLine, Alerts, WhichAlerts
from skep.wire.api.jobs import JobPage
from skep.wire.api.monitoring.failure_groups import GroupPage, WhichGroups
from skep.wire.api.runs import RunPage, Runs
from skep.wire.api.schedules import ScheduleLines, SchedulePage

#: Runs, groups, alerts and due times on the page.
RUNS, SHOWN = 6, 3
#: Schedules that are looked at for the next due times.
SCHEDULES = 200
COLUMNS = (
    Column("overview.column_run"),
    Column("overview.column_state"),
    Column("overview.column_left", is_number=True),
    Column("overview.column_done", is_number=True),
    Column("overview.column_failed", is_number=True),
    Column("overview.column_rate", is_number=True),
    Column("overview.column_waits"),
)
OPEN = "state:running,paused,failed"


@dataclass(frozen=True, slots=True)
class Due:
    job: str
    href: str
    time: str
    when: Moment | None


async def show(call: PageCall) -> Outcome:
    api = call.api
    found = await parts(
        ledger=api.center.ledger(),
        series=api.series.show(asked_series(call)),
        runs=api.runs.list(RunPage(RUNS, filter=OPEN)),
        groups=api.failure_groups.list(WhichGroups("open", limit=SHOWN)),
        alerts=api.center.alerts(WhichAlerts("open", limit=SHOWN)),
        schedules=api.schedules.list(SchedulePage(count=1, filter="", limit=SCHEDULES)),
        alive=api.agents.list(AgentPage("state:alive", limit=1)),
        agents=api.agents.list(AgentPage("", limit=1)),
        lanes=api.center.lanes(),
        jobs=api.jobs.list(JobPage(1, filter="")),
    )
    runs = found["runs"]
    rows = runs if isinstance(runs, Refused) else await _rows(call, runs.items)
    data = {
        "bar": _bar(found["ledger"]),
        "cards": cards_of(call, found["series"]),
        "columns": COLUMNS,
        "rows": rows,
        "open_runs": given(runs, Runs([])).count,
        "groups": given(found["groups"], GroupPage([])).items,
        "alerts": _alerts(found["alerts"]),
        "due": _due(given(found["schedules"], ScheduleLines([])), call.now),
        "alive": _count(found["alive"]),
        "agents": _count(found["agents"]),
        "lanes": found["lanes"],
        "is_new": _count(found["jobs"]) == 0 and not given(runs, Runs([])).items,
        "group_url": _group_url,
    }
    return View("pages/overview.html", data, watch=("runs", "agents"), every=5)


def _bar(found: object) -> LedgerBar | Refused:
    return found if isinstance(found, Refused) else ledger_bar(found.ledger)  # type: ignore[attr-defined]


def _count(found: object) -> int | None:
    return None if isinstance(found, Refused) else getattr(found, "count", None)


def _alerts(found: Alerts | Refused) -> Sequence[AlertLine]:
    return [] if isinstance(found, Refused) else found.lines()


def _group_url(group: KeptGroup) -> str:
    return f"/failures/{quote(group.group, safe='')}"


async def _rows(call: PageCall, runs: Sequence[Run]) -> list[Row]:
    return list(await asyncio.gather(*(_row(call, run) for run in runs)))


async def _row(call: PageCall, run: Run) -> Row:
    found = await parts(view=call.api.runs.show(run.id), why=call.api.why.run(run.id))
    view, why, href = found["view"], found["why"], f"/runs/{quote(run.id, safe='')}"
    figures: tuple[Cell, ...] = (empty_cell(),) * 4
    if not isinstance(view, Refused):
        ledger = view.ledger
        figures = (
            count_cell(ledger.open),
            count_cell(ledger.done),
            count_cell(ledger.dead),
            rate_cell(view.figures.rate),
        )
    waits = ""
    if not isinstance(why, Refused) and why.waiting and why.reasons:
        waits = why.reasons[0].text
    name = run.job or run.id
    note = run.id.removeprefix(f"{run.job}-") if run.job not in {"", run.id} else ""
    first = name_cell(name, href, note, 28)
    return Row(run.id, (first, state_cell(run.state), *figures, text_cell(waits, 90)), href)


def _due(lines: ScheduleLines, now: float) -> list[Due]:
    times = sorted((seconds_of(line.next[0]), line.job) for line in lines.items if line.next)
    return [
        Due(job, f"/jobs/{quote(job, safe='')}", clock_time(at), moment(at, now))
        for at, job in times[:SHOWN]
    ]


PAGES = (Page("overview", "/overview", show, nav=NavPlace("", 0, "o")),)
