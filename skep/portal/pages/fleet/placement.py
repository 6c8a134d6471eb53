"""Placement: who takes what, who may work for a run, and what would move with other agents.

It only asks; nothing on this page changes anything.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from skep.errors import InvalidInput, NotFound
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, given, part
from skep.portal.show.cells import (
    count_cell,
    name_cell,
    share_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.details import Pair
from skep.portal.show.numbers import number
from skep.portal.show.tables import Column, Row
from skep.wire.api.agents import AgentPage, Agents
from skep.wire.api.placement import AgentChange, PlacementView, PreviewView

#: Agents that the fields suggest, and moves that are shown.
SUGGESTED, MOVES = 200, 50
LONGEST = 2000
SHARES = (
    Column("placement.column_agent"),
    Column("placement.column_now", is_number=True),
    Column("placement.column_share_now", is_number=True),
    Column("placement.column_then", is_number=True),
    Column("placement.column_share_then", is_number=True),
)
#: Columns of the table that are about the present.
NOW = 3
MOVED = (
    Column("placement.column_from"),
    Column("placement.column_to"),
    Column("placement.column_keys", is_number=True),
)
EFFECTS = (
    Column("placement.column_run"),
    Column("placement.column_placement"),
    Column("placement.column_effect"),
)
SEATS = (
    Column("placement.column_agent"),
    Column("placement.column_state"),
    Column("placement.column_since"),
    Column("placement.column_why"),
)
VERDICTS = (
    Column("placement.column_agent"),
    Column("placement.column_may"),
    Column("placement.column_because"),
)


async def show(call: PageCall) -> Outcome:
    typed = {name: call.query.get(name, "").strip()[:LONGEST] for name in ("remove", "add", "run")}
    agents = given(await part(call.api.agents.list(AgentPage("", limit=SUGGESTED))), Agents([]))
    names = [line.agent.id for line in agents.items]
    changes = bool(typed["remove"] or typed["add"])
    data: dict[str, Any] = {
        "typed": typed,
        "names": names,
        "asked": changes,
        "command": _command(typed),
        "columns": {
            "shares": SHARES if changes else SHARES[:NOW],
            "moves": MOVED,
            "effects": EFFECTS,
        },
        "run_columns": {"seats": SEATS, "verdicts": VERDICTS},
        "problem": "",
        "preview": None,
        "of_run": None,
    }
    try:
        data |= await _found(call, typed, [line.agent.id for line in agents.items if line.alive])
    except (InvalidInput, NotFound) as error:
        data["problem"] = error.detail
    return View("pages/placement.html", data, watch=("agents",), every=15)


def _command(typed: dict[str, str]) -> str:
    """The same preview in a terminal."""
    words = ["placement", "preview", *([typed["run"]] if typed["run"] else [])]
    for name in ("remove", "add"):
        for agent in filter(None, (one.strip() for one in typed[name].split(","))):
            words += [f"--{name}", agent]
    return command(*words)


async def _found(call: PageCall, typed: dict[str, str], alive: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if typed["run"]:
        found["of_run"] = _of_run(await call.api.placement.of_run(typed["run"]), call)
    asked = AgentChange(typed["remove"], typed["add"], typed["run"])
    if not asked.remove and not asked.add:
        if not alive or not _is_keyed(found.get("of_run")):
            return found
        # An agent that is there already changes nothing: this is how the keys lie now.
        asked = AgentChange(add=alive[0], run=typed["run"])
    preview = await part(call.api.placement.preview(asked))
    if isinstance(preview, Refused) and preview.error.status in {400, 404}:
        raise preview.error
    width = len(SHARES) if typed["remove"] or typed["add"] else NOW
    found["preview"] = preview if isinstance(preview, Refused) else _preview(preview, width)
    return found


def _is_keyed(of_run: dict[str, Any] | None) -> bool:
    """Only runs with hashed placement have keys; without a run there are generated ones."""
    return of_run is None or bool(of_run["keyed"])


def _preview(view: PreviewView, width: int) -> dict[str, Any]:
    hashed = view.hashed
    before = sum(one.before for one in hashed.shares)
    after = sum(one.after for one in hashed.shares)
    return {
        "view": view,
        "figures": [
            Pair("placement.moved", f"{number(hashed.moved)} / {number(hashed.keys)}"),
            Pair("placement.ideal", number(round(hashed.ideal))),
            Pair("placement.imbalance_now", f"{hashed.imbalance_before:.2f}"),
            Pair("placement.imbalance_then", f"{hashed.imbalance_after:.2f}"),
        ],
        "shares": [
            Row(
                one.agent,
                (
                    name_cell(one.agent, _agent(one.agent)),
                    count_cell(one.before),
                    share_cell(one.before, before),
                    count_cell(one.after),
                    share_cell(one.after, after),
                )[:width],
            )
            for one in hashed.shares
        ],
        "moves": [
            Row(
                f"{one.source}>{one.to}",
                (name_cell(one.source), name_cell(one.to), count_cell(one.keys)),
            )
            for one in sorted(hashed.moves, key=lambda one: -one.keys)[:MOVES]
        ],
        "effects": [
            Row(
                one.run,
                (
                    name_cell(one.run, f"/runs/{quote(one.run, safe='')}"),
                    text_cell(one.placement),
                    text_cell(one.effect, 200),
                ),
            )
            for one in view.runs
        ],
    }


def _of_run(view: PlacementView, call: PageCall) -> dict[str, Any]:
    return {
        "view": view,
        "keyed": view.placement.traits.keyed,
        "seats": [
            Row(
                one.agent,
                (
                    name_cell(one.agent, _agent(one.agent)),
                    state_cell(one.state),
                    time_cell(one.since, call.now),
                    text_cell(one.why, 200),
                ),
            )
            for one in view.agents
        ],
        "verdicts": [
            Row(
                one.agent,
                (
                    name_cell(
                        one.name or one.agent, _agent(one.agent), _other(one.agent, one.name)
                    ),
                    text_cell(call.texts.plain("placement.no" if one.rule else "placement.yes")),
                    text_cell(one.detail, 200),
                ),
            )
            for one in view.verdicts
        ],
    }


def _other(agent: str, name: str) -> str:
    """The id beside the name; "" when they are the same."""
    return agent if name not in {"", agent} else ""


def _agent(name: str) -> str:
    return f"/agents/{quote(name, safe='')}"


PAGES = (Page("placement", "/placement", show, nav=NavPlace("fleet", 40, "p")),)
