"""`skep sites`: lists hosts, shows their politeness, and sets or clears their rules.

A rule applies to all agents and runs; setting a rule replaces the whole rule of the host.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center, listing_group
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.hosts.host import SiteView
    from skep.wire.api.hosts import Sites
    from skep.wire.client.api import CenterApi

HEAD = ("HOST", "PACE", "STATE", "REQUESTS", "FAILED", "REFUSED", "LATENCY", "AGENT")
#: Hosts per call.
PAGE = 1000


def _list(reach: CenterAddress, as_json: bool) -> None:
    views = asyncio.run(_read_all(reach))
    show_json({"items": views}) if as_json else show(sites_table(views))


@listing_group("sites", _list)
def command() -> None:
    """List hosts; show one, set or clear its rule."""


@command.command("ls", cls=FilterCommand)
@filter_options("hosts", 100)
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, as_json: bool) -> None:
    """List hosts with downloads or a rule: all, or those that match a filter (`failed:>0`)."""
    if not query.given:
        _list(reach, as_json)
        return
    found = ask(reach, lambda api: _page(api, query))
    if as_json:
        show_json(found)
        return
    text = sites_table(found.items) if found.items else no_match(query, found, sites_table([]))
    show_page(text, found, len(found.items))


async def _page(api: CenterApi, query: ListQuery) -> Sites:
    from skep.wire.api.hosts import HostPage

    return await query.find(api, api.hosts.list, HostPage)


async def _read_all(reach: CenterAddress) -> list[SiteView]:
    from skep.wire.api.hosts import HostPage

    views: list[SiteView] = []
    after = ""
    async with connected(reach) as client:
        while True:
            page = await client.api.hosts.list(HostPage(PAGE, after))
            views += page.items
            after = page.next
            if not after:
                return views


def sites_table(views: Sequence[SiteView]) -> str:
    """As text."""
    if not views:
        return "no hosts yet; a host is listed after the first download from it"
    now = SystemClock().now()
    spare = ("AGENT", "LATENCY", "REFUSED")
    return table(HEAD, [_row(view, now) for view in views], spare=spare)


def _row(view: SiteView, now: float) -> tuple[object, ...]:
    return (
        view.host,
        pace_of(view),
        state_of(view, now),
        view.requests,
        view.failed,
        view.refused,
        f"{view.latency:.2f} s",
        Id(view.agent or "-"),
    )


def pace_of(view: SiteView) -> str:
    """The current rate limit and concurrency as text."""
    if view.pace is None:
        return "any"
    rate = f"1 in {view.pace.spacing:.2g} s" if view.pace.spacing else "any rate"
    return f"{rate}, {view.pace.concurrency} at once"


def state_of(view: SiteView, now: float) -> str:
    """Cooling, probing, in use by a block, or idle."""
    if view.cooling_until > now:
        return f"cooling {age(view.cooling_until - now)} ({view.reason})"
    if view.strikes:
        return f"probing ({view.reason})"
    return "in hand" if view.block is not None else "idle"


def _checked_host(text: str) -> str:
    """Check a host; raises BadParameter that suggests the host part of a URL."""
    if text and not re.search(r"[\s/?#@]", text):
        return text
    found = re.search(r"(?:^|//|@)([A-Za-z0-9_.-]+)(?::[0-9]+)?(?:[/?#]|$)", text)
    near = f", such as {found[1]}" if found else ", such as example.org"
    raise click.BadParameter(
        f"{text!r} is not a host; give a name or an address without scheme, port and path{near}"
    )


def _show_one(view: SiteView, as_json: bool) -> None:
    show_json(view) if as_json else show(site_text(view))


def site_text(view: SiteView) -> str:
    """Everything about one host, one fact per line."""
    from msgspec.structs import asdict

    now = SystemClock().now()
    rule = {name: value for name, value in asdict(view.rule).items() if value is not None}
    robots = view.pace is not None and view.pace.robots
    lines = (
        ("host", view.host),
        ("rule", ", ".join(f"{name} {value}" for name, value in rule.items()) or "none"),
        ("pace", pace_of(view)),
        ("robots.txt", "obeyed" if robots else "not requested"),
        ("crawl delay", f"{view.crawl_delay:g} s" if view.crawl_delay else "none known"),
        ("state", state_of(view, now)),
        ("requests", f"{view.requests}, {view.failed} failed, {view.refused} refused"),
        ("barred", f"{view.barred} by robots.txt, {view.deferred} deferred"),
        ("received", f"{view.received} bytes, {view.latency:.3f} s each"),
        ("last", f"{age(now - view.last_at)} ago" if view.last_at else "never"),
        ("held by", view.agent or "no agent"),
    )
    return "\n".join(f"{name + ':':<13}{text}" for name, text in lines)


@command.command("show")
@click.argument("host")
@wide_option
@json_option
@calls_center
def show_site(reach: CenterAddress, host: str, as_json: bool) -> None:
    """Show one host: its rule, its rate limit and its results."""
    name = _checked_host(host)
    _show_one(ask(reach, lambda api: api.hosts.show(name)), as_json)


@command.command("set")
@click.argument("host")
@click.option(
    "--rate", type=click.FloatRange(0, 10_000), help="Requests per second; 0 means no limit."
)
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Downloads at the same time.")
@click.option("--robots/--no-robots", default=None, help="Whether to obey robots.txt.")
@json_option
@calls_center
def set_rule(
    reach: CenterAddress,
    host: str,
    rate: float | None,
    concurrency: int | None,
    robots: bool | None,
    as_json: bool,
) -> None:
    """Set the rule of a host for all agents and runs; options not given get the default."""
    from skep.model.hosts.host import SiteRule

    rule = SiteRule(rate, concurrency, robots)
    if rule == SiteRule():
        raise click.UsageError(
            "no rule is given; use at least one of --rate, --concurrency, --robots"
        )
    name = _checked_host(host)
    _show_one(ask(reach, lambda api: api.hosts.put(name, rule)), as_json)


@command.command("clear")
@click.argument("host")
@json_option
@calls_center
def clear(reach: CenterAddress, host: str, as_json: bool) -> None:
    """Delete the rule of a host and its learned limits; its counts remain."""
    name = _checked_host(host)
    _show_one(ask(reach, lambda api: api.hosts.clear(name)), as_json)
