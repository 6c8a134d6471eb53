"""Notices: the outbox of webhooks and mails. Its addresses come from settings files and jobs."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from skep.portal.lists import read_list, views_for
from skep.portal.page import Outcome, Page, PageCall, View
from skep.portal.pages.settings.tabs import tabs_of
from skep.portal.show.cells import (
    code_cell,
    count_cell,
    name_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.storage import NoticeLine, Notices, WhichNotices

_LIST = "/settings/notices"
COLUMNS = (
    Column("settings.column_notice"),
    Column("settings.column_state"),
    Column("settings.column_target"),
    Column("settings.column_run"),
    Column("settings.column_tries", is_number=True),
    Column("settings.column_created"),
    Column("settings.column_due"),
    Column("settings.column_error"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("notices", call.query)
    listed, wanted = await read_list(wanted, partial(_ask, call), Notices([]))
    listing = Listing(
        _LIST,
        wanted,
        COLUMNS,
        [_row(call, one) for one in listed.items],
        listed,
        empty="settings_notices",
        command=command("storage", "--notices"),
        api_path="/api/v1/notices",
        views=await views_for(call, "notices"),
    )
    return View(
        "pages/settings_notices.html", {"tabs": tabs_of("notices"), "listing": listing}, every=10
    )


async def _ask(call: PageCall, wanted: Filter) -> Notices:
    asks = WhichNotices(limit=PAGE_ROWS, filter=wanted.text, page=wanted.page)
    return await call.api.storage.notices(asks)


def _row(call: PageCall, one: NoticeLine) -> Row:
    cells = (
        name_cell(one.kind, note=one.job),
        state_cell(one.state.replace(" ", "_")),
        code_cell(one.target, 60),
        name_cell(one.run, f"/runs/{quote(one.run, safe='')}" if one.run else ""),
        count_cell(one.tries),
        time_cell(one.created_at, call.now),
        time_cell(one.due_at, call.now),
        text_cell(one.error),
    )
    return Row(one.id, cells)


PAGES = (Page("settings", _LIST, show),)
