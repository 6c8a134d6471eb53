"""One request: why it waits, its attempts, the archived answer as text and in a frame, its acts.

What was collected is hostile. As text it is escaped like every value; as a page it is sent by a
route of its own that lets it run and load nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from skep.errors import InvalidInput, NotFound
from skep.model.attempt import Attempt
from skep.portal.page import Done, Foreign, Outcome, Page, PageCall, View
from skep.portal.panels import Refused, given, part, parts
from skep.portal.show.acts import Act
from skep.portal.show.bodies import Body, content_type_of, without_loads
from skep.portal.show.cells import (
    code_cell,
    duration_cell,
    name_cell,
    size_cell,
    state_cell,
    text_cell,
    time_cell,
)
from skep.portal.show.commands import command
from skep.portal.show.details import Pair, Tab
from skep.portal.show.names import held
from skep.portal.show.numbers import number, size
from skep.portal.show.tables import Column, Row
from skep.runtime.ids import new_id
from skep.wire.api.operations import StartOperation
from skep.wire.api.requests import ArchivedHead, RequestDetail, RequestLine
from skep.wire.client.api import CenterApi

TABS = ("attempts", "answer", "page")
COLUMNS = (
    Column("request.column_at"),
    Column("request.column_result"),
    Column("request.column_agent"),
    Column("request.column_time", is_number=True),
    Column("request.column_sent", is_number=True),
    Column("request.column_received", is_number=True),
    Column("request.column_address"),
    Column("request.column_detail"),
)
#: Bytes of a body that are shown as text, and in the frame.
TEXT_LIMIT, PAGE_LIMIT = 200_000, 2_000_000
#: Attempts on the page, newest first.
ATTEMPTS = 100
#: States in which an act changes something.
_CAN = {"retry": frozenset({"dead"}), "cancel": frozenset({"waiting", "queued", "delayed"})}


async def show(call: PageCall) -> Outcome:
    wanted = _number(call)
    tab = call.query.get("tab", TABS[0])
    tab = tab if tab in TABS else TABS[0]
    view = await call.api.requests.show(wanted)
    data: dict[str, Any] = {
        "request": view.request,
        "tabs": _tabs(view, tab),
        "tab": tab,
        "acts": acts_of(view.request, call),
        "figures": _figures(view),
        "command": command("request", "show", str(wanted)),
        "body_command": command("request", "body", str(wanted)),
        **await _tab_data(call, tab, view),
    }
    title = call.texts.plain("request.name", number=str(wanted))
    every = 5 if tab == TABS[0] else 0
    return View("pages/request.html", data, title=title, watch=_watch(tab, wanted), every=every)


def _watch(tab: str, wanted: int) -> tuple[str, ...]:
    return (f"request:{wanted}",) if tab == TABS[0] else ()


def _number(call: PageCall) -> int:
    text = call.path["request"]
    if not text.isascii() or not text.isdecimal() or len(text) > 18:  # noqa: PLR2004
        raise NotFound(f"there is no request {text[:50]!r}")
    return int(text)


def _tabs(view: RequestDetail, open_tab: str) -> list[Tab]:
    base = f"/requests/{view.request.id}"
    counts = {"attempts": len(view.attempts)}
    return [
        Tab(
            f"request.tab_{one}",
            base if one == TABS[0] else f"{base}?tab={one}",
            one == open_tab,
            counts.get(one),
        )
        for one in TABS
    ]


def acts_of(line: RequestLine, call: PageCall) -> list[Act]:
    """What its state allows, for a caller who may act."""
    if not call.may("operator"):
        return []
    return [
        Act(
            f"request.act_{verb}",
            f"/requests/{line.id}/{verb}",
            destroys=verb == "cancel",
            confirm=f"request.confirm_{verb}" if verb == "cancel" else "",
            command=command("bulk", verb, "requests", f"id:{line.id}"),
            api_path="/api/v1/operations",
        )
        for verb, states in _CAN.items()
        if line.state in states
    ]


def _figures(view: RequestDetail) -> list[Pair]:
    line, attempts = view.request, view.attempts
    last = attempts[-1] if attempts else None
    return [
        Pair("request.attempts", number(len(attempts))),
        Pair("request.failures", number(line.failures), attention=line.failures > 0),
        Pair("request.priority", number(line.priority)),
        Pair("request.block", number(line.block)),
        Pair("request.received", size(last.received if last else None)),
        Pair("request.archived", size(_archived(attempts))),
    ]


def _archived(attempts: Sequence[Attempt]) -> int:
    return next((one.length for one in reversed(attempts) if one.length), 0)


async def _tab_data(call: PageCall, tab: str, view: RequestDetail) -> dict[str, Any]:
    wanted = view.request.id
    if tab == "attempts":
        newest = list(reversed(view.attempts))[:ATTEMPTS]
        why = await part(call.api.why.request(wanted))
        return {"why": why, "columns": COLUMNS, "rows": [_row(one, call.now) for one in newest]}
    found = await parts(
        head=call.api.requests.head(wanted), body=read_body(call.api, wanted, TEXT_LIMIT)
    )
    head = given(found["head"], ArchivedHead("", []))
    kind = content_type_of(head)
    data = {"body": found["body"], "frame_url": f"/requests/{wanted}/page"}
    if tab == "page":
        return {**data, "is_page": kind.is_page}
    headers = [Pair("", held(one.value), held(one.name)) for one in head.headers]
    body: Body | Refused = found["body"]
    text = "" if isinstance(body, Refused) else body.text(kind)
    return {**data, "head": found["head"], "headers": headers, "text": text}


def _row(attempt: Attempt, now: float) -> Row:
    ended = attempt.failure or "done"
    status = str(attempt.status) if attempt.status else ""
    cells = (
        time_cell(attempt.at, now),
        state_cell("failed" if attempt.failure else ended, f"{attempt.failure} {status}".strip()),
        name_cell(attempt.agent, f"/agents/{quote(attempt.agent, safe='')}", limit=24),
        duration_cell(attempt.elapsed_us / 1e6),
        size_cell(attempt.sent),
        size_cell(attempt.received),
        code_cell(attempt.address, 24),
        text_cell(attempt.detail or attempt.final_uri, 200),
    )
    return Row(f"{attempt.block}-{attempt.token}-{attempt.at}", cells)


async def read_body(api: CenterApi, request: int, limit: int) -> Body:
    """At most `limit` bytes of the archived body. Raises the errors of the API."""
    content = b""
    async with api.requests.body(request) as download:
        stated = download.headers.get("content-length", "")
        async for piece in download.pieces:
            content += piece
            if len(content) > limit:
                break
    whole = int(stated) if stated.isdecimal() else None
    return Body(content[:limit], whole, len(content) > limit)


async def page(call: PageCall) -> Outcome:
    """The archived answer for the frame."""
    wanted = _number(call)
    head = given(await part(call.api.requests.head(wanted)), ArchivedHead("", []))
    body = await read_body(call.api, wanted, PAGE_LIMIT)
    kind = content_type_of(head)
    text = body.text(kind)
    content = without_loads(text) if kind.is_page else text
    shown = "text/html" if kind.is_page else "text/plain"
    return Foreign(content.encode("utf-8", "replace"), f"{shown}; charset=utf-8")


async def act(call: PageCall) -> Outcome:
    """Retry or cancel, as an operation on this one request."""
    wanted, verb = _number(call), call.path["verb"]
    if verb not in _CAN:
        raise InvalidInput(f"{verb[:50]!r} is not an act on a request")
    which, key = f"id:{wanted}", new_id("act", call.now, call.rng)
    await call.api.requests.show(wanted)  # raises NotFound before anything starts
    answer = await call.api.operations.start(StartOperation("requests", verb, which))
    shown = answer.plan.confirm if answer.plan is not None else ""
    ask = StartOperation("requests", verb, which, dry_run=False, confirm=shown, key=key)
    await call.api.operations.start(ask)
    return Done(call.texts.plain(f"request.said_{verb}"), f"/requests/{wanted}")


PAGES = (
    Page("request", "/requests/{request}", show, under="requests"),
    Page("request", "/requests/{request}/page", page, under="requests"),
    Page("request", "/requests/{request}/{verb}", act, method="POST", under="requests"),
)
