"""One run: its ledger, why it waits, its figures, its settings, its log, and its acts."""

from __future__ import annotations

from typing import Any, cast, get_args
from urllib.parse import quote

import msgspec

from skep.errors import InvalidInput
from skep.model.filter.syntax import quoted_if_needed
from skep.model.run import Run
from skep.model.states import RUN_CHANGES, RunState
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, part
from skep.portal.show.acts import Act
from skep.portal.show.charts import ChartShape, Series, chart
from skep.portal.show.commands import command
from skep.portal.show.details import Pair, Tab, pairs_of
from skep.portal.show.ledgers import ledger_bar
from skep.portal.show.logs import shown_log
from skep.portal.show.numbers import number, rate, share, size
from skep.wire.api.monitoring.logs import WhichLines
from skep.wire.api.monitoring.series import Chart, WhichSeries
from skep.wire.api.runs import RunVerb, RunView, Waiting

TABS = ("summary", "charts", "settings", "log")
#: What an act does to the state; the order of the buttons.
_VERBS: dict[str, RunState] = {
    "pause": RunState.PAUSED,
    "continue": RunState.RUNNING,
    "finish": RunState.FINISHED,
    "cancel": RunState.CANCELLED,
}
_DESTROYS = frozenset({"finish", "cancel"})
_CHARTS = "requests.done,requests.failed,bytes.received"
#: Seconds to wait for the processes of the run, so that the page shows what they did.
_WAIT = 2.0
LOG_LINES = 200


async def show(call: PageCall) -> Outcome:
    name = call.path["run"]
    tab = call.query.get("tab", TABS[0])
    tab = tab if tab in TABS else TABS[0]
    view = await call.api.runs.show(name)
    why = await part(call.api.why.run(name))
    data: dict[str, Any] = {
        "view": view,
        "run": view.run,
        "bar": ledger_bar(view.ledger, f"run:{name}"),
        "why": why,
        "tabs": _tabs(name, tab),
        "tab": tab,
        "acts": acts_of(view, call),
        "figures": _figures(view),
        **await _tab_data(call, tab, view),
    }
    return View("pages/run.html", data, title=name, watch=(f"run:{name}",), every=5)


def _tabs(name: str, open_tab: str) -> list[Tab]:
    base = f"/runs/{quote(name, safe='')}"
    return [
        Tab(f"run.tab_{one}", base if one == TABS[0] else f"{base}?tab={one}", one == open_tab)
        for one in TABS
    ]


def acts_of(view: RunView, call: PageCall) -> list[Act]:
    """The acts that its state allows, for a caller who may act."""
    if not call.may("operator"):
        return []
    name, path = view.run.id, f"/runs/{quote(view.run.id, safe='')}"
    acts = [
        Act(
            f"run.act_{verb}",
            f"{path}/{verb}",
            destroys=verb in _DESTROYS,
            confirm=f"run.confirm_{verb}" if verb in _DESTROYS else "",
            command=command("runs", verb, name),
            api_path=f"/api/v1/runs/{quote(name, safe='')}/{verb}",
        )
        for verb, state in _VERBS.items()
        if state in RUN_CHANGES[view.run.state]
    ]
    if view.ledger.dead and view.run.state is not RunState.CANCELLED:
        retry = Act(
            "run.act_revive",
            f"{path}/revive",
            count=view.ledger.dead,
            command=command("runs", "revive", name),
            api_path=f"/api/v1/runs/{quote(name, safe='')}/revive",
        )
        acts.append(retry)
    return acts


def _figures(view: RunView) -> list[Pair]:
    ledger, figures = view.ledger, view.figures
    failed = sum(figures.failures.values())
    return [
        Pair("run.left", number(ledger.open)),
        Pair("run.done", number(ledger.done)),
        Pair("run.dead", number(ledger.dead), attention=ledger.dead > 0),
        Pair("run.rate", f"{rate(figures.rate)}/s" if figures.rate else rate(0)),
        Pair("run.failed_share", share(failed, figures.answers)),
        Pair("run.received", size(figures.received)),
        Pair("run.agents", number(len(figures.agents))),
    ]


async def _tab_data(call: PageCall, tab: str, view: RunView) -> dict[str, Any]:
    name = view.run.id
    if tab == "charts":
        asks = WhichSeries(_CHARTS, name, call.range.since, call.range.until)
        found = await part(call.api.series.show(asks))
        return {"charts_found": found if isinstance(found, Refused) else charts_of(found, call)}
    if tab == "settings":
        return {"settings": pairs_of(msgspec.to_builtins(view.run.settings))}
    if tab == "log":
        wanted, cursor = f"run:{quoted_if_needed(name)}", call.query.get("cursor", "")
        asks_log = WhichLines(wanted, cursor=cursor, limit=LOG_LINES)
        log = await part(call.api.logs.search(asks_log))
        return {"log": log if isinstance(log, Refused) else shown_log(log, wanted)}
    return {}


def charts_of(found: Chart, call: PageCall) -> list[tuple[str, ChartShape]]:
    """One chart for answers, one for bytes."""
    texts = call.texts
    by_name = {line.name: line.points for line in found.lines}
    requests = [
        Series(texts.plain("run.chart_done"), by_name.get("requests.done", []), "run"),
        Series(texts.plain("run.chart_failed"), by_name.get("requests.failed", []), "bad"),
    ]
    received = [Series(texts.plain("run.chart_received"), by_name.get("bytes.received", []))]
    return [
        ("run.chart_requests", chart(found.since, found.step, requests)),
        ("run.chart_bytes", chart(found.since, found.step, received, size)),
    ]


async def change(call: PageCall) -> Outcome:
    """Pause, continue, finish or cancel."""
    name, verb = call.path["run"], call.path["verb"]
    path = f"/runs/{quote(name, safe='')}"
    if verb == "revive":
        revived = await call.api.runs.revive(name)
        return Done(call.texts.plain("run.said_revive", n=revived.requests), path)
    moved = await call.api.runs.change(name, _verb(verb), Waiting(_WAIT))
    return Done(call.texts.plain("run.said", state=_word(call, moved.run)), path)


def _verb(text: str) -> RunVerb:
    for verb in get_args(RunVerb):
        if text == verb:
            return cast("RunVerb", verb)
    raise InvalidInput(f"{text[:50]!r} is not an act on a run")


def _word(call: PageCall, run: Run) -> str:
    key = f"states.{run.state}"
    return call.texts.plain(key)


PAGES = (
    Page("run", "/runs/{run}", show, under="runs"),
    Page("run", "/runs/{run}/{verb}", change, method="POST", under="runs"),
)
