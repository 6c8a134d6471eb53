"""One agent: its figures, what it holds, its commands, its machine, its log, and its acts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, get_args
from urllib.parse import quote

from skep.errors import InvalidInput
from skep.model.filter.syntax import quoted_if_needed
from skep.model.fleet.agent import DRAINING, REVOKED, Order, machine_of
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, given, part, parts
from skep.portal.show.acts import Act
from skep.portal.show.agents import POINTS, averaged, idle_key, shown_word
from skep.portal.show.cells import (
    Cell,
    count_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.charts import ChartShape, Series, chart
from skep.portal.show.commands import command
from skep.portal.show.details import Pair, Tab
from skep.portal.show.logs import shown_log
from skep.portal.show.numbers import NONE, duration, number, rate, share, size
from skep.portal.show.tables import Column, Row
from skep.wire.api.agents import AgentDetail, AgentVerb, Beats, Since
from skep.wire.api.hosts import HostPage, Sites
from skep.wire.api.monitoring.logs import WhichLines
from skep.wire.api.placement import AllocationLine, AllocationsOf

TABS = ("summary", "charts", "log")
LOG_LINES = 200
#: Hosts that are shown as held, and runs whose instances are looked for.
HELD, RUNS = 20, 10
#: The longest period of the API's heartbeats.
_LONGEST = 604_800.0
_ASKS_FIRST = frozenset({"drain", "restart", "exit", "revoke"})
_DESTROYS = frozenset({"exit", "revoke"})
ORDERS = (
    Column("agent.column_order"),
    Column("agent.column_given"),
    Column("agent.column_answer"),
)
HOLDS = (
    Column("agent.column_host"),
    Column("agent.column_run"),
    Column("agent.column_block", is_number=True),
)
WORKS = (
    Column("agent.column_run"),
    Column("agent.column_run_state"),
    Column("agent.column_since"),
    Column("agent.column_placement"),
)
INSTANCES = (
    Column("agent.column_instance"),
    Column("agent.column_run_state"),
    Column("agent.column_since"),
    Column("agent.column_reason"),
)


async def show(call: PageCall) -> Outcome:
    tab = call.query.get("tab", TABS[0])
    tab = tab if tab in TABS else TABS[0]
    detail = await call.api.agents.show(call.path["agent"])
    agent = detail.agent
    who = agent.registration
    data: dict[str, Any] = {
        "detail": detail,
        "agent": agent,
        "who": who,
        "word": shown_word(detail),
        "idle": idle_key(detail),
        "machine": machine_of(agent.id),
        "tabs": _tabs(agent.id, tab),
        "tab": tab,
        "acts": acts_of(detail, call),
        "figures": _figures(detail),
        **await _tab_data(call, tab, detail),
    }
    watch = (f"agent:{agent.id}",)
    return View("pages/agent.html", data, title=who.name or agent.id, watch=watch, every=5)


def _tabs(name: str, open_tab: str) -> list[Tab]:
    base = f"/agents/{quote(name, safe='')}"
    return [
        Tab(f"agent.tab_{one}", base if one == TABS[0] else f"{base}?tab={one}", one == open_tab)
        for one in TABS
    ]


def acts_of(detail: AgentDetail, call: PageCall) -> list[Act]:
    """The commands that its state allows, for an admin."""
    if not call.may("admin"):
        return []
    name, path = detail.agent.id, f"/agents/{quote(detail.agent.id, safe='')}"
    return [
        Act(
            f"agent.act_{verb}",
            f"{path}/{verb}",
            destroys=verb in _DESTROYS,
            confirm=f"agent.confirm_{verb}" if verb in _ASKS_FIRST else "",
            command=command("agents", verb, name),
            api_path=f"/api/v1{path}/{verb}",
        )
        for verb in _verbs(detail)
    ]


def _verbs(detail: AgentDetail) -> list[str]:
    agent = detail.agent
    if agent.aside == REVOKED:
        return ["enable"]
    verbs = ["disable", "cordon"] if agent.enabled else ["enable"]
    if agent.aside != DRAINING:
        verbs.append("drain")
    return [*verbs, "restart", "exit", "revoke"]


def _figures(detail: AgentDetail) -> list[Pair]:
    vitals, alive = detail.agent.vitals, detail.alive
    outbox = number(vitals.outbox)
    if vitals.outbox_age:
        outbox = f"{outbox} ({duration(vitals.outbox_age)})"
    dropped = [Pair("agent.dropped", number(vitals.dropped), attention=True)]
    return [
        Pair("agent.beat", _whole(detail.last_beat_age), attention=not alive),
        Pair("agent.active", number(vitals.active) if alive else NONE),
        Pair("agent.rate", f"{rate(vitals.rate)}/s" if alive and vitals.rate else NONE),
        Pair("agent.cpu", share(vitals.cpu, 1) if alive else NONE),
        Pair("agent.load", f"{vitals.load:.2f}" if alive else NONE),
        Pair("agent.free_memory", size(vitals.free_memory) if alive else NONE),
        Pair("agent.free_disk", size(vitals.free_disk) if alive else NONE),
        Pair("agent.outbox", outbox),
        *(dropped if vitals.dropped else ()),
    ]


def _whole(seconds: float) -> str:
    """In whole seconds: a heartbeat comes every few."""
    return duration(seconds // 1) if seconds >= 1 else "0 s"


async def _tab_data(call: PageCall, tab: str, detail: AgentDetail) -> dict[str, Any]:
    name = detail.agent.id
    if tab == "charts":
        return {"charts_found": await _charts(call, name)}
    if tab == "log":
        wanted, cursor = f"agent:{quoted_if_needed(name)}", call.query.get("cursor", "")
        log = await part(call.api.logs.search(WhichLines(wanted, cursor=cursor, limit=LOG_LINES)))
        return {"log": log if isinstance(log, Refused) else shown_log(log, wanted)}
    return await _summary(call, detail)


async def _summary(call: PageCall, detail: AgentDetail) -> dict[str, Any]:
    name = detail.agent.id
    found = await parts(
        runs=call.api.placement.of_agent(name),
        hosts=call.api.hosts.list(HostPage(HELD, filter=f"agent:{quoted_if_needed(name)}")),
        version=call.api.health.version(),
    )
    runs = given(found["runs"], AllocationsOf([])).items
    hosts, version = found["hosts"], found["version"]
    return {
        "order_columns": ORDERS,
        "orders": [_order(call, one) for one in detail.orders],
        "work_columns": WORKS,
        "runs": [_work(one, call.now) for one in runs],
        "hold_columns": HOLDS,
        "holds": hosts if isinstance(hosts, Refused) else _holds(hosts),
        "instance_columns": INSTANCES,
        "instances": await _instances(call, name, runs),
        "facts": _facts(call, detail),
        "center_version": "" if isinstance(version, Refused) else version.version,
    }


def _order(call: PageCall, one: Order) -> Row:
    """A command, and whether the agent has acknowledged it."""
    if one.ended_at is None:
        answer: Cell = text_cell(call.texts.plain("agent.order_open"))
    else:
        took = duration(max(one.ended_at - one.made_at, 0))
        answer = text_cell(call.texts.plain("agent.order_done", outcome=one.outcome, span=took))
    key = f"agent.act_{one.name}"
    name = call.texts.plain(key) if call.texts.has(key) else one.name
    return Row(str(one.no), (name_cell(name), time_cell(one.made_at, call.now), answer))


def _work(one: AllocationLine, now: float) -> Row:
    href = f"/runs/{quote(one.run, safe='')}"
    cells = (
        name_cell(one.run, href),
        state_cell(one.state),
        time_cell(one.since, now),
        text_cell(one.placement),
    )
    return Row(one.run, cells, href)


def _holds(found: Sites) -> list[Row]:
    return [
        Row(
            one.host,
            (
                name_cell(one.host, f"/hosts/{quote(one.host, safe='')}"),
                name_cell(one.run, f"/runs/{quote(one.run, safe='')}" if one.run else ""),
                count_cell(one.block),
            ),
        )
        for one in found.items
    ]


async def _instances(call: PageCall, name: str, runs: Sequence[AllocationLine]) -> list[Row]:
    """Its processes of applications, from the open runs that chose it."""
    chosen = [one.run for one in runs if one.until is None][:RUNS]
    found = await parts(**{run: call.api.apps.instances(run) for run in chosen})
    return [
        Row(
            f"{one.run}/{one.no}",
            (
                name_cell(f"{one.run} #{one.no}", f"/runs/{quote(one.run, safe='')}"),
                state_cell(one.state),
                time_cell(one.changed_at, call.now),
                text_cell(one.reason),
            ),
        )
        for answer in found.values()
        if not isinstance(answer, Refused)
        for one in (line.instance for line in answer.items)
        if one.agent == name
    ]


def _facts(call: PageCall, detail: AgentDetail) -> list[Pair]:
    agent, texts = detail.agent, call.texts
    who = agent.registration
    own = texts.plain("agent.own_token" if agent.bound else "agent.shared_token")
    return [
        Pair("agent.fact_id", who.id),
        Pair("agent.fact_group", who.group),
        Pair("agent.fact_labels", _pairs(who.labels)),
        Pair("agent.fact_kinds", " ".join(who.kinds)),
        Pair("agent.fact_version", who.version or NONE),
        Pair("agent.fact_address", who.address or NONE),
        Pair("agent.fact_os", who.os or NONE),
        Pair("agent.fact_cpus", number(who.cpus)),
        Pair("agent.fact_memory", size(who.memory)),
        Pair("agent.fact_session", texts.plain("agent.session", no=agent.session, token=own)),
    ]


def _pairs(labels: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items())) or NONE


async def _charts(call: PageCall, name: str) -> list[tuple[str, ChartShape]] | Refused:
    period = call.range
    asks = Since(min(max(call.now - period.since, 1.0), _LONGEST), points=10_000)
    found = await part(call.api.agents.vitals(name, asks))
    return found if isinstance(found, Refused) else charts_of(call, found)


def charts_of(call: PageCall, found: Beats) -> list[tuple[str, ChartShape]]:
    """Rate and downloads, processor, free memory."""
    since, step = call.range.since, call.range.seconds / POINTS

    def line(key: str, name: str, look: str = "run") -> Series:
        return Series(call.texts.plain(key), averaged(found.items, name, since, step), look)

    work = [line("agent.rate", "rate"), line("agent.active", "active", "ok")]
    return [
        ("agent.chart_work", chart(since, step, work)),
        ("agent.chart_cpu", chart(since, step, [line("agent.cpu", "cpu")], _percent)),
        (
            "agent.chart_memory",
            chart(since, step, [line("agent.free_memory", "free_memory")], size),
        ),
    ]


def _percent(value: float | None) -> str:
    return NONE if value is None else share(value, 1)


async def change(call: PageCall) -> Outcome:
    """A command to the agent."""
    verb = _verb(call.path["verb"])
    line = await call.api.agents.command(call.path["agent"], verb)
    key = f"agent.said_{verb}"
    return Done(call.texts.plain(key), f"/agents/{quote(line.agent.id, safe='')}")


def _verb(text: str) -> AgentVerb:
    for verb in get_args(AgentVerb):
        if text == verb:
            return cast("AgentVerb", verb)
    raise InvalidInput(f"{text[:50]!r} is not a command for an agent")


PAGES = (
    Page("agent", "/agents/{agent}", show, under="agents"),
    Page("agent", "/agents/{agent}/{verb}", change, method="POST", under="agents"),
)
