"""Applications: the jobs that run programs on agents, their instances, and live logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from skep.errors import InvalidInput, NotFound
from skep.model.jobs.app import INSTANCE_ENDS
from skep.model.jobs.job import KeptJob
from skep.model.run import Run
from skep.portal.acts import acts_for
from skep.portal.lists import read_list
from skep.portal.page import Data, Done, NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, given, part, parts
from skep.portal.show.acts import Act
from skep.portal.show.app_logs import app_log
from skep.portal.show.cells import (
    Cell,
    code_cell,
    empty_cell,
    name_cell,
    state_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row, selected_filter
from skep.portal.show.times import Moment, moment
from skep.wire.api.apps import InstanceLine, LogAsk
from skep.wire.api.jobs import JobList, JobPage
from skep.wire.api.runs import RunPage, Runs

COLUMNS = (
    Column("apps.column_job"),
    Column("apps.column_state"),
    Column("apps.column_run"),
    Column("apps.column_run_state"),
    Column("apps.column_changed"),
    Column("apps.column_program"),
)
#: Runs that are read to find the newest one of each application on a page.
_RUNS = 500
#: Bytes of a log that are read at once, and seconds that a call waits for new ones.
LOG_BYTES, WAIT = 2**16, 20.0


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("jobs", call.query)
    listed, wanted = await read_list(wanted, partial(_ask, call), JobList([]))
    runs = await _newest(call, [kept.job.name for kept in listed.items])
    listing = Listing(
        "/apps",
        wanted,
        COLUMNS,
        [_row(kept, runs.get(kept.job.name), call.now) for kept in listed.items],
        listed,
        await acts_for(call, "jobs"),
        field="name",
        empty="apps",
        command=command("job", "ls", "kind:app"),
        api_path="/api/v1/jobs?filter=kind:app",
    )
    return View("pages/apps.html", {"listing": listing}, watch=("jobs:kind:app", "runs"))


async def _ask(call: PageCall, wanted: Filter) -> JobList:
    text = f"kind:app ({wanted.text})" if wanted.text else "kind:app"
    return await call.api.jobs.list(JobPage(PAGE_ROWS, filter=text, page=wanted.page))


async def _newest(call: PageCall, names: Sequence[str]) -> dict[str, Run]:
    if not names:
        return {}
    asks = RunPage(_RUNS, filter=selected_filter("job", names))
    found: dict[str, Run] = {}
    for run in given(await part(call.api.runs.list(asks)), Runs([])).items:
        found.setdefault(run.job, run)
    return found


def _row(kept: KeptJob, run: Run | None, now: float) -> Row:
    job = kept.job
    href = f"/jobs/{quote(job.name, safe='')}"
    newest: tuple[Cell, Cell, Cell] = (empty_cell(), empty_cell(), empty_cell())
    if run is not None:
        at = time_cell(run.changed_at or run.created_at, now)
        newest = name_cell(run.id, _path(run.id)), state_cell(run.state), at
    program = (job.app.image or job.app.package) if job.app else ""
    word = "enabled" if job.enabled else "disabled"
    cells = (name_cell(job.name, href), state_cell(word), *newest, code_cell(program))
    return Row(job.name, cells, newest[0].href or href)


def _path(run: str, no: int | None = None) -> str:
    base = f"/apps/{quote(run, safe='')}"
    return base if no is None else f"{base}/{no}"


@dataclass(frozen=True, slots=True)
class ShownInstance:
    line: InstanceLine
    changed: Moment | None
    acts: Sequence[Act]


async def show_run(call: PageCall) -> Outcome:
    """The instances of one run."""
    name = call.path["run"]
    view = await call.api.runs.show(name)
    found = await parts(instances=call.api.apps.instances(name), why=call.api.why.run(name))
    instances = found["instances"]
    lines = [] if isinstance(instances, Refused) else instances.items
    data: dict[str, Any] = {
        "run": view.run,
        "found": instances,
        "why": found["why"],
        "instances": [_shown(line, call) for line in lines],
    }
    title = call.texts.plain("apps.of_run", name=name)
    return View("pages/app.html", data, title=title, watch=(f"run:{name}",), every=3)


def _shown(line: InstanceLine, call: PageCall) -> ShownInstance:
    acts = _acts(line) if call.may("operator") else []
    return ShownInstance(line, moment(line.instance.changed_at, call.now), acts)


def _acts(line: InstanceLine) -> list[Act]:
    one = line.instance
    verbs = ["restart"] if one.state in INSTANCE_ENDS else ["restart", "stop"]
    name = quote(one.run, safe="")
    return [
        Act(
            f"apps.act_{verb}",
            f"{_path(one.run, one.no)}/{verb}",
            destroys=verb == "stop",
            confirm=f"apps.confirm_{verb}",
            command=command("app", verb, one.run, str(one.no)),
            api_path=f"/api/v1/runs/{name}/instances/{one.no}/{verb}",
        )
        for verb in verbs
    ]


async def show_instance(call: PageCall) -> Outcome:
    """One instance with its log."""
    name, no = call.path["run"], _number(call)
    instances = (await call.api.apps.instances(name)).items
    line = next((one for one in instances if one.instance.no == no), None)
    if line is None:
        raise NotFound(f"run {name} has no instance {no}")
    log = await part(call.api.apps.log(name, no, LogAsk(-LOG_BYTES, LOG_BYTES)))
    data = {
        "shown": _shown(line, call),
        "instance": line.instance,
        "log": log if isinstance(log, Refused) else app_log(log, _query(name, no)),
    }
    title = call.texts.plain("apps.instance", name=name, no=str(no))
    return View("pages/instance.html", data, title=title, watch=(f"run:{name}",), every=5)


def _query(run: str, no: int) -> str:
    return urlencode({"run": run, "no": no})


async def lines(call: PageCall) -> Outcome:
    """Lines of the log for its module: `from` for new ones, `before` for older ones."""
    run, no = call.query.get("run", ""), call.query.get("no", "")
    start, before = call.query.get("from", ""), call.query.get("before", "")
    given_numbers = [one for one in (no, start, before) if one]
    if not run or not all(_is_number(one) for one in given_numbers) or not no:
        raise InvalidInput("name a run, an instance, and where to read")
    which = _query(run, int(no))
    if before:
        first = max(int(before) - LOG_BYTES, 0)
        asks = LogAsk(first, max(int(before) - first, 1))
        found = await call.api.apps.log(run, int(no), asks)
        return Data(msgspec.to_builtins(app_log(found, which, older=True)))
    found = await call.api.apps.log(run, int(no), LogAsk(int(start or 0), LOG_BYTES, WAIT))
    joins = call.query.get("open") == "yes"
    return Data(msgspec.to_builtins(app_log(found, which, joins=joins, whole=not joins)))


async def change(call: PageCall) -> Outcome:
    """Restart or stop one instance."""
    name, no, verb = call.path["run"], _number(call), call.path["verb"]
    acts = {"restart": call.api.apps.restart, "stop": call.api.apps.stop}
    if verb not in acts:
        raise InvalidInput(f"{verb[:50]!r} is not an act on an instance")
    await acts[verb](name, no)
    return Done(call.texts.plain(f"apps.said_{verb}", no=str(no)), _path(name))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19  # noqa: PLR2004


def _number(call: PageCall) -> int:
    text = call.path["no"]
    if not _is_number(text):
        raise NotFound(f"there is no instance {text[:50]!r}")
    return int(text)


PAGES = (
    Page("apps", "/apps", show, nav=NavPlace("work", 60, "u")),
    Page("app_lines", "/app-lines", lines),
    Page("apps", "/apps/{run}", show_run, under="apps"),
    Page("apps", "/apps/{run}/{no}", show_instance, under="apps"),
    Page("apps", "/apps/{run}/{no}/{verb}", change, method="POST", under="apps"),
)
