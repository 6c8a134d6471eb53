"""Agents: the list."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from skep.portal.acts import acts_for
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.agents import shown_word
from skep.portal.show.cells import (
    code_cell,
    count_cell,
    empty_cell,
    labels_cell,
    name_cell,
    rate_cell,
    share_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.agents import AgentLine, AgentPage, Agents

COLUMNS = (
    Column("agents.column_agent"),
    Column("agents.column_state"),
    Column("agents.column_group"),
    Column("agents.column_seen"),
    Column("agents.column_active", is_number=True),
    Column("agents.column_rate", is_number=True),
    Column("agents.column_cpu", is_number=True),
    Column("agents.column_outbox", is_number=True),
    Column("agents.column_version"),
    Column("agents.column_labels"),
)
OFFERED = (
    ("agents.offer_alive", "state:alive"),
    ("agents.offer_dead", "state:dead"),
    ("agents.offer_aside", "state:disabled,cordoned,draining,revoked"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("agents", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call), Agents([]))
    listing = Listing(
        "/agents",
        wanted,
        COLUMNS,
        [_row(line, call.now) for line in listed.items],
        listed,
        await acts_for(call, "agents"),
        field="id",
        empty="agents",
        command=command("agents"),
        api_path="/api/v1/agents",
        views=await views_for(call, "agents"),
    )
    watch = f"agents:{wanted.text}" if wanted.text and not wanted.problem else "agents"
    return View("pages/agents.html", {"listing": listing}, watch=(watch,), every=5)


async def _ask(call: PageCall, wanted: Filter) -> Agents:
    return await call.api.agents.list(AgentPage(wanted.text, wanted.page, PAGE_ROWS))


def _row(line: AgentLine, now: float) -> Row:
    who, vitals = line.agent.registration, line.agent.vitals
    href = f"/agents/{quote(who.id, safe='')}"
    # The figures of the last heartbeat of a dead agent are no longer true.
    figures = (
        (count_cell(vitals.active), rate_cell(vitals.rate), share_cell(vitals.cpu, 1))
        if line.alive
        else (empty_cell(), empty_cell(), empty_cell())
    )
    cells = (
        name_cell(who.name or who.id, href, who.id if who.name not in {"", who.id} else ""),
        state_cell(shown_word(line)),
        text_cell(who.group, 40),
        time_cell(min(line.agent.seen_at, now), now),
        *figures,
        count_cell(vitals.outbox),
        code_cell(who.version, 20),
        labels_cell(who.labels),
    )
    return Row(who.id, cells, href)


async def count(call: PageCall) -> NavCount:
    """All agents; marked when one of them is dead."""
    known = await call.api.agents.list(AgentPage("", limit=1))
    dead = await call.api.agents.list(AgentPage("state:dead", limit=1))
    return NavCount(known.count, "warn" if dead.count else "")


PAGES = (Page("agents", "/agents", show, nav=NavPlace("fleet", 10, "n"), count=count),)
