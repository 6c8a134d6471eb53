"""`skep request`: shows a request with its attempts, and lists or cancels requests by filter.

A body is written unchanged to a file or pipe; on a terminal, control characters are escaped.
"""

from __future__ import annotations

import asyncio
import sys
from typing import IO, TYPE_CHECKING, Any

import click

from skep.cli.commands.operate.operation_start import Asked
from skep.cli.commands.results.bulk_requests import (
    batch_options,
    change,
    filter_text,
    moment,
    without_question,
)
from skep.cli.commands.results.failures import said
from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center, center_group
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option, stacked
from skep.cli.terminal.output import (
    age,
    harmless,
    harmless_lines,
    show,
    show_exact,
    show_json,
    table,
)
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.attempt import Attempt
    from skep.wire.api.requests import RequestDetail, RequestPage
    from skep.wire.client.api import CenterApi

STATES = ("waiting", "queued", "delayed", "done", "dead", "cancelled", "expired")
#: Options of `cancel`, as fields of a filter.
FIELDS = {
    "run": "run:",
    "job": "job:",
    "host": "host:",
    "state": "state:",
    "text": "uri:",
    "since": "created:>=",
    "until": "created:<",
}
SPARE = ("SENT", "ADDRESS", "RECEIVED")
ATTEMPT_HEAD = ("AGO", "AGENT", "RESULT", "TIME", "SENT", "RECEIVED", "ADDRESS", "DETAIL")

_filters = stacked(
    click.option("--run", default="", help="Run of the requests."),
    click.option("--job", default="", help="Job of the runs."),
    click.option("--host", default="", help="Host of the requests."),
    click.option("--state", type=click.Choice(STATES), help="State of the requests."),
    click.option("--text", default="", help="Text in the URI."),
    click.option("--since", callback=moment, help="Accepted after this time: 30min, 2h or 3d ago."),
    click.option(
        "--until", callback=moment, help="Accepted before this time: 30min, 2h or 3d ago."
    ),
)


@center_group("request")
def command() -> None:
    """Show a request and its attempts; list or cancel requests."""


@command.command("show")
@click.argument("number", type=click.IntRange(0), metavar="ID")
@wide_option
@json_option
@calls_center
def show_request(reach: CenterAddress, number: int, as_json: bool) -> None:
    """Show a request and its attempts, oldest first."""
    view = ask(reach, lambda api: api.requests.show(number))
    show_json(view) if as_json else show(request_text(view))


@command.command("body")
@click.argument("number", type=click.IntRange(0), metavar="ID")
@click.option("-o", "file", type=click.File("wb"), help="Write the body to this file.")
@calls_center
def show_body(reach: CenterAddress, number: int, file: IO[bytes] | None) -> None:
    """Print the newest archived body of a request.

    A pipe or a file receives the bytes unchanged; on a terminal, control characters are
    escaped.
    """
    data = asyncio.run(_body(reach, number))
    if file is not None:
        file.write(data)
    elif sys.stdout.isatty():
        show_exact(harmless_lines(data))
    else:
        sys.stdout.buffer.write(data)


async def _body(reach: CenterAddress, number: int) -> bytes:
    async with connected(reach) as client, client.api.requests.body(number) as download:
        return await download.read()


def request_text(view: RequestDetail) -> str:
    """As text."""
    request, now = view.request, SystemClock().now()
    since = f"accepted {age(now - request.created_at)} ago"
    lines = [
        f"request {request.id} of {request.run}: {request.state}",
        harmless(request.uri),
        f"priority {request.priority}, {request.failures} failures, {since}",
    ]
    rows = [_attempt(attempt, now) for attempt in view.attempts]
    return "\n".join(
        [*lines, "", table(ATTEMPT_HEAD, rows, SPARE) if rows else "no stored attempts"]
    )


def _attempt(attempt: Attempt, now: float) -> tuple[object, ...]:
    result = f"{attempt.failure or 'ok'} {attempt.status or ''}".strip()
    taken = f"{attempt.elapsed_us / 1e6:.3f} s"
    return (
        age(now - attempt.at),
        Id(attempt.agent),
        result,
        taken,
        attempt.sent,
        attempt.received,
        attempt.address or "-",
        attempt.detail,
    )


@command.command("ls", cls=FilterCommand)
@filter_options("requests")
@_filters
@click.option("--after", type=click.IntRange(0), default=0, help="Only requests with larger ids.")
@wide_option
@json_option
@calls_center
def ls(
    reach: CenterAddress,
    query: ListQuery,
    after: int,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List requests. A filter such as `state:dead host:*.example.com` lists the newest first;
    options alone list them by id. Filters and options are combined with AND.
    """
    found = ask(reach, lambda api: _listed(api, query, after, said(wanted)))
    if as_json:
        show_json(found)
        return
    rows = [(one.id, Id(one.run), one.state, one.failures, one.uri) for one in found.items]
    head = ("REQUEST", "RUN", "STATE", "FAILURES", "URI")
    text = (
        table(head, rows)
        if rows
        else no_match(query, found, "no requests match; `skep runs` lists runs")
    )
    show_page(text, found, len(rows))


async def _listed(
    api: CenterApi, query: ListQuery, after: int, given: dict[str, Any]
) -> RequestPage:
    from skep.wire.api.requests import WhichRequests

    if not query.words and not query.page:  # sorted by id
        limit = query.limit or query.default_limit
        return await api.requests.list(WhichRequests(**given, limit=limit, after=after))
    return await query.find(api, api.requests.list, WhichRequests, after=after, **given)


@command.command("cancel")
@_filters
@batch_options("Every open request.")
@json_option
@calls_center
def cancel(
    reach: CenterAddress,
    everything: bool,
    dry_run: bool,
    yes: bool,
    wait: bool,
    as_json: bool,
    **wanted: Any,
) -> int:
    """Cancel open requests, except those that an agent has leased. Filters are combined with
    AND.
    """
    given = said(wanted)
    if not given and not everything:
        raise click.UsageError(
            "no requests are selected; give a filter such as --run or --host, or --all"
        )
    if "state" not in given:
        given["state"] = "open"
    text = filter_text(given, FIELDS)
    asked = Asked(
        "cancel", "requests", text, everything, dry_run, without_question(yes, as_json), wait
    )
    return asyncio.run(change(reach, asked, as_json))
