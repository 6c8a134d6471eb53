"""Readiness with the fix of each check, versions, the self-check, and the command of a backup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from skep.portal.page import NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.pages.system.tabs import tabs_of
from skep.portal.panels import Refused, parts
from skep.portal.show.cells import Cell, code_cell, count_cell, state_cell, text_cell
from skep.portal.show.details import Pair
from skep.portal.show.tables import Column, Row
from skep.wire.api.agents import AgentPage, Agents
from skep.wire.api.center import RepairsView
from skep.wire.api.health import Check, Ready, Verbose, Version

CHECKS = (
    Column("system.column_check"),
    Column("system.column_state"),
    Column("system.column_detail"),
    Column("system.column_fix"),
)
REPAIRS = (
    Column("system.column_difference"),
    Column("system.column_open", is_number=True),
    Column("system.column_repaired", is_number=True),
    Column("system.column_last_repair"),
)
VERSIONS = (
    Column("system.column_version"),
    Column("system.column_agents", is_number=True),
)
#: Agents whose versions are counted.
AGENTS = 1000


async def show(call: PageCall) -> Outcome:
    api = call.api
    found = await parts(
        ready=api.health.ready(Verbose("yes")),
        version=api.health.version(),
        repairs=api.center.repairs(),
        agents=api.agents.list(AgentPage("", limit=AGENTS)),
    )
    repairs, agents = found["repairs"], found["agents"]
    ready = found["ready"]
    data = {
        "tabs": tabs_of("health"),
        "ready": ready,
        "check_columns": CHECKS,
        "checks": [] if isinstance(ready, Refused) else _checks(call, ready),
        "version": found["version"],
        "figures": _figures(call, found["version"], ready),
        "repair_columns": REPAIRS,
        "repairs": repairs if isinstance(repairs, Refused) else _repairs(repairs),
        "version_columns": VERSIONS,
        "versions": agents if isinstance(agents, Refused) else _versions(call, agents),
    }
    return View("pages/system.html", data, every=10)


def _checks(call: PageCall, ready: Ready) -> list[Row]:
    return [Row(one.name, _check(call, one)) for one in ready.checks]


def _check(call: PageCall, one: Check) -> Sequence[Cell]:
    key = f"system.fix_{one.name}"
    fix = "" if one.ok else call.texts.plain(key if call.texts.has(key) else "system.fix_other")
    name = f"system.check_{one.name}"
    return (
        text_cell(call.texts.plain(name) if call.texts.has(name) else one.name),
        state_cell("ok" if one.ok else "failed"),
        text_cell(one.detail, 200),
        text_cell(fix, 400),
    )


def _figures(call: PageCall, version: Version | Refused, ready: Ready | Refused) -> list[Pair]:
    good = not isinstance(ready, Refused) and ready.status == "ok"
    word = call.texts.plain("system.ready" if good else "system.not_ready")
    pairs = [Pair("system.readiness", word, attention=not good)]
    if not isinstance(version, Refused):
        protocol = f"{version.oldest_protocol}\N{EN DASH}{version.protocol}"
        pairs += [
            Pair("system.center", version.center),
            Pair("system.version", version.version),
            Pair("system.protocol", protocol),
        ]
    return pairs


def _repairs(found: RepairsView) -> list[Row]:
    return [
        Row(
            one.kind,
            (
                code_cell(one.kind, 60),
                count_cell(one.open),
                count_cell(one.repaired),
                text_cell(one.last, 200),
            ),
        )
        for one in found.items
    ]


def _versions(call: PageCall, found: Agents) -> list[Row]:
    counts = Counter(one.agent.registration.version for one in found.items)
    unknown = call.texts.plain("system.unknown_version")
    return [
        Row(name, (code_cell(name or unknown), count_cell(count)))
        for name, count in counts.most_common()
    ]


async def count(call: PageCall) -> NavCount:
    """Checks that fail."""
    ready = await call.api.health.ready(Verbose("yes"))
    return NavCount(sum(not one.ok for one in ready.checks) or None, "bad")


PAGES = (Page("system", "/system", show, nav=NavPlace("operate", 50, "y"), count=count),)
