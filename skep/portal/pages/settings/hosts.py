"""Rules of hosts: rate, parallel downloads and robots.txt, over all agents and runs."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

from skep.errors import InvalidInput
from skep.model.hosts.host import SiteRule, SiteView
from skep.portal.lists import read_list, views_for
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.pages.settings.tabs import tabs_of
from skep.portal.show.acts import Act
from skep.portal.show.cells import Cell, name_cell, text_cell, time_cell
from skep.portal.show.commands import command
from skep.portal.show.forms import typed
from skep.portal.show.numbers import NONE
from skep.portal.show.tables import PAGE_ROWS, Column, Filter, Listing, Row
from skep.wire.api.hosts import HostPage, Sites

_LIST = "/settings/hosts"
COLUMNS = (
    Column("settings.column_host"),
    Column("settings.column_rate", is_number=True),
    Column("settings.column_concurrency", is_number=True),
    Column("settings.column_robots"),
    Column("settings.column_last"),
    Column("settings.column_reason"),
)
_ROBOTS = {"": None, "obey": True, "ignore": False}


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("hosts", call.query)
    listed, wanted = await read_list(wanted, partial(_ask, call), Sites([]))
    listing = Listing(
        _LIST,
        wanted,
        COLUMNS,
        [_row(call, one) for one in listed.items],
        listed,
        field="host",
        empty="settings_hosts",
        command=command("sites", "ls"),
        api_path="/api/v1/sites",
        views=await views_for(call, "hosts"),
    )
    data = {"tabs": tabs_of("hosts"), "listing": listing, "may": call.may("operator")}
    return View("pages/settings_hosts.html", data, every=10)


async def _ask(call: PageCall, wanted: Filter) -> Sites:
    return await call.api.hosts.list(HostPage(PAGE_ROWS, filter=wanted.text, page=wanted.page))


def _row(call: PageCall, site: SiteView) -> Row:
    rule, href = site.rule, _path(site.host)
    robots = call.texts.plain(f"settings.robots_{_robots_word(rule) or 'default'}")
    cells = (
        name_cell(site.host, href),
        Cell("number", NONE if rule.rate is None else f"{rule.rate:g}/s"),
        Cell("number", NONE if rule.concurrency is None else str(rule.concurrency)),
        text_cell(robots),
        time_cell(site.last_at, call.now),
        text_cell(site.reason),
    )
    return Row(site.host, cells, href)


def _robots_word(rule: SiteRule) -> str:
    return next(word for word, value in _ROBOTS.items() if value is rule.robots)


def _path(host: str) -> str:
    return f"{_LIST}/{quote(host, safe='')}"


async def show_one(call: PageCall) -> Outcome:
    site = await call.api.hosts.show(call.path["host"])
    has_rule = site.rule != SiteRule()
    clear = Act(
        "settings.act_clear",
        f"{_path(site.host)}/clear",
        destroys=True,
        confirm="settings.confirm_clear",
        command=command("sites", "clear", site.host),
        api_path=f"/api/v1/sites/{quote(site.host, safe='')}",
        method="DELETE",
    )
    data = {
        "site": site,
        "robots": _robots_word(site.rule),
        "may": call.may("operator"),
        "acts": [clear] if has_rule and call.may("operator") else [],
        "path": _path(site.host),
    }
    return View("pages/settings_host.html", data, title=site.host)


async def save(call: PageCall) -> Outcome:
    """Set the rule; an empty field is the default."""
    host = call.path.get("host") or call.field("host").strip()
    values = {
        "rate": _number(call, "rate"),
        "concurrency": _whole(call, "concurrency"),
        "robots": _robots(call.field("robots")),
    }
    await call.api.hosts.put(host, typed(values, SiteRule))
    return Done(call.texts.plain("settings.said_saved", name=host), _path(host))


def _robots(word: str) -> bool | None:
    if word not in _ROBOTS:
        raise InvalidInput(f"robots: {word[:20]!r} is not obey or ignore")
    return _ROBOTS[word]


def _number(call: PageCall, name: str) -> Any:
    text = call.field(name).strip()
    try:
        return float(text) if text else None
    except ValueError as error:
        raise InvalidInput(f"{name}: {text[:50]!r} is not a number") from error


def _whole(call: PageCall, name: str) -> Any:
    found = _number(call, name)
    if found is not None and not float(found).is_integer():
        raise InvalidInput(f"{name}: {found} is not a whole number")
    return None if found is None else int(found)


async def clear(call: PageCall) -> Outcome:
    host = call.path["host"]
    await call.api.hosts.clear(host)
    return Done(call.texts.plain("settings.said_clear", name=host), _LIST)


PAGES = (
    Page("settings", _LIST, show),
    Page("settings", _LIST, save, method="POST"),
    Page("settings", "/settings/hosts/{host}", show_one),
    Page("settings", "/settings/hosts/{host}", save, method="POST"),
    Page("settings", "/settings/hosts/{host}/clear", clear, method="POST"),
)
