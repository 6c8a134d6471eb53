"""Hosts: the list, with the pace, the reason of a pause, and the results of each."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from skep.model.hosts.host import SiteRule, SiteView
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.pages.fleet.host import rule_form
from skep.portal.show.cells import (
    Cell,
    count_cell,
    duration_cell,
    empty_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.hosts import host_concurrency, host_rate, host_word
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.hosts import HostPage, Sites

COLUMNS = (
    Column("hosts.column_host"),
    Column("hosts.column_state"),
    Column("hosts.column_until"),
    Column("hosts.column_rate", is_number=True),
    Column("hosts.column_concurrency", is_number=True),
    Column("hosts.column_requests", is_number=True),
    Column("hosts.column_failed", is_number=True),
    Column("hosts.column_refused", is_number=True),
    Column("hosts.column_latency", is_number=True),
    Column("hosts.column_last"),
    Column("hosts.column_agent"),
    Column("hosts.column_reason"),
)
OFFERED = (
    ("hosts.offer_paused", "reason:*"),
    ("hosts.offer_refused", "refused:>0"),
    ("hosts.offer_failed", "failed:>0"),
    ("hosts.offer_held", "agent:*"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("hosts", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call), Sites([]))
    listing = Listing(
        "/hosts",
        wanted,
        COLUMNS,
        [_row(view, call) for view in listed.items],
        listed,
        field="host",
        empty="hosts",
        command=command("sites", "ls"),
        api_path="/api/v1/sites",
        views=await views_for(call, "hosts"),
    )
    form = await rule_form(call, SiteRule()) if call.may("operator") else None
    return View("pages/hosts.html", {"listing": listing, "form": form}, every=5)


async def _ask(call: PageCall, wanted: Filter) -> Sites:
    page = HostPage(PAGE_ROWS, filter=wanted.text, page=wanted.page)
    return await call.api.hosts.list(page)


def _row(view: SiteView, call: PageCall) -> Row:
    now, href = call.now, f"/hosts/{quote(view.host, safe='')}"
    word = host_word(view, now)
    rule = call.texts.plain("hosts.has_rule") if view.rule != SiteRule() else ""
    cells: tuple[Cell, ...] = (
        name_cell(view.host, href, rule),
        state_cell(word),
        time_cell(view.cooling_until, now) if word == "paused" else empty_cell(),
        Cell("number", host_rate(view)),
        Cell("number", host_concurrency(view)),
        count_cell(view.requests),
        count_cell(view.failed),
        count_cell(view.refused),
        duration_cell(view.latency or None),
        time_cell(view.last_at, now),
        name_cell(
            view.agent, f"/agents/{quote(view.agent, safe='')}" if view.agent else "", "", 20
        ),
        text_cell(view.reason if word in {"paused", "probing"} else ""),
    )
    return Row(view.host, cells, href)


PAGES = (Page("hosts", "/hosts", show, nav=NavPlace("fleet", 30, "h")),)
