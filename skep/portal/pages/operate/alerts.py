"""Alerts: those that are open, those that ended; acknowledge and mute."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from skep.errors import InvalidInput
from skep.portal.lists import read_list, views_for
from skep.portal.page import Done, NavCount, NavPlace, Outcome, Page, PageCall, View
from skep.portal.safe_paths import safe_path
from skep.portal.show.commands import command
from skep.portal.show.details import Tab
from skep.portal.show.tables import PAGE_ROWS, Filter, Listing
from skep.wire.api.center import Alerts, WhichAlerts
from skep.wire.api.monitoring.alerts import MuteAlert, WhichAlert

OFFERED = (("alerts.offer_today", "since:24h"), ("alerts.offer_often", "times:>10"))
#: Hours for which an alert can be muted.
HOURS = (1, 8, 24, 168)
_PATHS = {"open": "/alerts", "resolved": "/alerts/resolved", "rules": "/alerts/rules"}


def tabs_of(open_tab: str) -> list[Tab]:
    return [Tab(f"alerts.tab_{name}", path, name == open_tab) for name, path in _PATHS.items()]


def shows(state: str) -> Callable[[PageCall], Awaitable[Outcome]]:
    """The page with the alerts of one state."""
    return partial(_show, state)


async def _show(state: str, call: PageCall) -> Outcome:
    wanted = Filter.of("alerts", call.query, OFFERED)
    listed, wanted = await read_list(wanted, partial(_ask, call, state), Alerts([]))
    words = ("alerts", "ls") if state == "open" else ("alerts", "ls", "--all")
    listing = Listing(
        _PATHS[state],
        wanted,
        (),
        [],
        listed,
        empty="alerts",
        command=command(*words),
        api_path=f"/api/v1/alerts?state={state}",
        views=await views_for(call, "alerts"),
    )
    data = {
        "listing": listing,
        "alerts": listed.lines(),
        "tabs": tabs_of(state),
        "may": call.may("operator"),
        "hours": HOURS,
        "is_open": state == "open",
    }
    return View("pages/alerts.html", data, every=5)


async def _ask(call: PageCall, state: str, wanted: Filter) -> Alerts:
    word: Literal["open", "resolved"] = "open" if state == "open" else "resolved"
    return await call.api.center.alerts(
        WhichAlerts(word, PAGE_ROWS, filter=wanted.text, page=wanted.page)
    )


async def acknowledge(call: PageCall) -> Outcome:
    kind, subject = call.field("kind"), call.field("subject")
    await call.api.alerts.acknowledge(WhichAlert(kind, subject))
    return Done(call.texts.plain("alerts.said_acknowledge"), _next(call))


async def mute(call: PageCall) -> Outcome:
    """For `hours`; 0 ends the mute."""
    hours = call.field("hours")
    if not hours.isdecimal() or int(hours[:4]) not in (0, *HOURS):
        raise InvalidInput(f"{hours[:20]!r} is not a time for which an alert can be muted")
    until = call.now + int(hours) * 3600 if int(hours) else 0.0
    await call.api.alerts.mute(MuteAlert(call.field("kind"), call.field("subject"), until))
    said = "alerts.said_mute" if until else "alerts.said_unmute"
    return Done(call.texts.plain(said), _next(call))


def _next(call: PageCall) -> str:
    return safe_path(call.field("next"), _PATHS["open"])


async def count(call: PageCall) -> NavCount:
    """Alerts that are not resolved."""
    found = await call.api.center.alerts(WhichAlerts("open", 1, filter=""))
    return NavCount(found.count, "warn")


PAGES = (
    Page("alerts", "/alerts", shows("open"), nav=NavPlace("operate", 20, "a"), count=count),
    Page("alerts", "/alerts/resolved", shows("resolved")),
    Page("alerts", "/alerts/acknowledge", acknowledge, method="POST"),
    Page("alerts", "/alerts/mute", mute, method="POST"),
)
