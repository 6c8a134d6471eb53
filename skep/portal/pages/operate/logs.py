"""Logs: search with a filter, follow, the lines around a line, download."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import urlencode

import msgspec

from skep.errors import InvalidInput
from skep.portal.lists import read_list, views_for
from skep.portal.page import NavPlace, Outcome, Page, PageCall, View
from skep.portal.show.commands import command
from skep.portal.show.logs import context_of, shown_lines, shown_log
from skep.portal.show.tables import Filter, Listing
from skep.wire.api.monitoring.logs import LogPage, WhichContext, WhichLines

#: Lines of the first answer; the module loads older ones.
LINES = 300
#: Lines before and after a line.
AROUND = 50
OFFERED = (
    ("logs.offer_errors", "level:error,critical"),
    ("logs.offer_warnings", "level:warning,error,critical"),
    ("logs.offer_spiders", "source:spider"),
    ("logs.offer_agents", "source:agent,downloader"),
    ("logs.offer_hour", "since:1h"),
)
_NOTHING = LogPage([], "", None, 0, 0, 0, 0)


async def show(call: PageCall) -> Outcome:
    wanted = Filter.of("logs", call.query, OFFERED)
    found, wanted = await read_list(wanted, partial(_ask, call), _NOTHING)
    words = ("logs", *((wanted.text,) if wanted.text else ()))
    query = urlencode({"filter": wanted.text}) if wanted.text else ""
    listing = Listing(
        "/logs",
        wanted,
        (),
        [],
        command=command(*words),
        api_path=f"/api/v1/logs?{query}" if query else "/api/v1/logs",
        views=await views_for(call, "logs"),
    )
    data = {
        "listing": listing,
        "page_of_lines": found,
        "log": shown_log(found, wanted.text),
        "path": f"/logs?{query}" if query else "/logs",
        "downloads": [_download(wanted.text, sort) for sort in ("text", "json")],
    }
    return View("pages/logs.html", data)


async def _ask(call: PageCall, wanted: Filter) -> LogPage:
    cursor = call.query.get("cursor", "")
    return await call.api.logs.search(WhichLines(wanted.text, cursor=cursor, limit=LINES))


def _download(text: str, sort: str) -> tuple[str, str]:
    """Sort and path of a file with the lines; the API sends it as an attachment."""
    return sort, f"/api/v1/logs/download?{urlencode({'filter': text, 'format': sort})}"


async def around(call: PageCall) -> Outcome:
    """The lines of one source around one of its lines."""
    asks = _place(call.query)
    found = await call.api.logs.context(asks)
    here = next((line for line in found.lines if _is_it(line.token, line.offset, asks)), None)
    data = {
        "lines": shown_lines(found.lines),
        "at": "" if here is None else context_of(here),
        "asks": asks,
        "api_path": f"/api/v1/logs/context?{urlencode(msgspec.to_builtins(asks))}",
    }
    return View("pages/log_context.html", data, title=call.texts.plain("logs.around"))


def _is_it(token: int, offset: int, asks: WhichContext) -> bool:
    return (token, offset) == (asks.token, asks.offset)


def _place(query: Mapping[str, str]) -> WhichContext:
    """The line that the query names. Raises InvalidInput."""
    names = ("source", "kind", "token", "offset", "run", "agent")
    given = {name: query[name] for name in names if name in query}
    try:
        return msgspec.convert(
            {**given, "before": AROUND, "after": AROUND}, WhichContext, strict=False
        )
    except msgspec.ValidationError as error:
        raise InvalidInput(f"this names no log line: {error}") from error


PAGES = (
    Page("logs", "/logs", show, nav=NavPlace("operate", 10, "l")),
    Page("logs", "/logs/context", around),
)
