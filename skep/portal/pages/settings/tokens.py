"""Tokens: the list, add (shown once), revoke. Only digests are stored."""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import quote

from skep.errors import InvalidInput, NotFound
from skep.model.filter.syntax import quoted_if_needed
from skep.portal.lists import read_list, views_for
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.pages.settings.tabs import ROLES, shown_once, tabs_of
from skep.portal.panels import Refused, part
from skep.portal.show.acts import Act
from skep.portal.show.cells import Cell, name_cell, state_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.details import Pair
from skep.portal.show.forms import typed
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.portal.show.times import moment
from skep.wire.api.tokens import NewToken, TokenLine, TokenPage, Tokens

_LIST = "/settings/tokens"
_DAY = 86_400.0
COLUMNS = (
    Column("settings.column_token"),
    Column("settings.column_state"),
    Column("settings.column_role"),
    Column("settings.column_subject"),
    Column("settings.column_created"),
    Column("settings.column_expires"),
    Column("settings.column_used"),
    Column("settings.column_scope"),
)
OFFERED = (
    ("settings.offer_people", "role:viewer,operator,admin"),
    ("settings.offer_agents", "role:agent,join"),
)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("tokens", call.query, OFFERED)
    answer = await part(read_list(wanted, partial(_ask, call), Tokens([])))
    listed, wanted = (Tokens([]), wanted) if isinstance(answer, Refused) else answer
    listing = Listing(
        _LIST,
        wanted,
        COLUMNS,
        [_row(call, one) for one in listed.items],
        listed,
        field="id",
        empty="settings_tokens",
        command=command("token", "ls"),
        api_path="/api/v1/tokens",
        views=await views_for(call, "tokens"),
    )
    data = {
        "tabs": tabs_of("tokens"),
        "listing": listing,
        "refused": answer if isinstance(answer, Refused) else None,
        "roles": ROLES,
    }
    return View("pages/settings_tokens.html", data, every=10)


async def _ask(call: PageCall, wanted: Filter) -> Tokens:
    return await call.api.tokens.list(TokenPage(PAGE_ROWS, filter=wanted.text, page=wanted.page))


def _row(call: PageCall, line: TokenLine) -> Row:
    token, href = line.token, _path(line.token.id)
    cells = (
        name_cell(token.note or token.id, href, token.id if token.note else ""),
        state_cell(line.state),
        text_cell(token.role),
        name_cell(token.subject or token.used_by),
        time_cell(token.created_at, call.now),
        time_cell(token.expires_at, call.now),
        time_cell(token.last_used_at or token.used_at, call.now),
        Cell("labels", [(one, one) for one in token.scope]),
    )
    return Row(token.id, cells, href)


def _path(name: str) -> str:
    return f"{_LIST}/{quote(name, safe='')}"


async def add(call: PageCall) -> Outcome:
    """The answer shows the token, once."""
    values: dict[str, Any] = {
        "role": call.field("role"),
        "name": call.field("name").strip(),
        "seconds": _seconds(call.field("days").strip()),
        "scope": [one for one in re.split(r"[\s,]+", call.field("scope")) if one],
    }
    made = await call.api.tokens.create(typed(values, NewToken))
    until = moment(call.now + values["seconds"], call.now) if values["seconds"] else None
    return shown_once(call, "token_made", made.token, _LIST, until)


def _seconds(days: str) -> float | None:
    """Raises InvalidInput; "" = until it is revoked."""
    if not days:
        return None
    if not days.isascii() or not days.isdecimal() or not 0 < int(days[:6]) <= 36_500:  # noqa: PLR2004
        raise InvalidInput(f"{days[:20]!r} is not a number of days from 1 to 36500")
    return int(days) * _DAY


async def show_one(call: PageCall) -> Outcome:
    line = await _find(call, call.path["token"])
    token = line.token
    pairs = [
        Pair("settings.column_role", token.role),
        Pair("settings.column_subject", token.subject or token.used_by),
        Pair("settings.column_scope", ", ".join(token.scope)),
    ]
    data = {"line": line, "pairs": pairs, "acts": _acts(call, line), "name": token.note or token.id}
    return View("pages/settings_token.html", data, title=token.note or token.id, every=10)


async def _find(call: PageCall, name: str) -> TokenLine:
    missing = f"there is no token {name[:50]!r}"
    try:
        found = await call.api.tokens.list(TokenPage(1, filter=f"id:{quoted_if_needed(name)}"))
    except InvalidInput as error:
        raise NotFound(missing) from error
    exact = [one for one in found.items if one.token.id == name]
    if not exact:
        raise NotFound(missing)
    return exact[0]


def _acts(call: PageCall, line: TokenLine) -> list[Act]:
    if not call.may("admin") or line.state != "live":
        return []
    return [
        Act(
            "settings.act_revoke",
            f"{_path(line.token.id)}/revoke",
            destroys=True,
            confirm="settings.confirm_revoke",
            command=command("token", "revoke", line.token.id),
            api_path=f"/api/v1/tokens/{quote(line.token.id, safe='')}",
            method="DELETE",
        )
    ]


async def revoke(call: PageCall) -> Outcome:
    name = call.path["token"]
    await call.api.tokens.revoke(name)
    return Done(call.texts.plain("settings.said_revoke"), _path(name))


PAGES = (
    Page("settings", _LIST, show),
    Page("settings", _LIST, add, method="POST"),
    Page("settings", "/settings/tokens/{token}", show_one),
    Page("settings", "/settings/tokens/{token}/revoke", revoke, method="POST"),
)
