"""`skep failures`: lists dead requests by cause, and retries, cancels or deletes them.

Bulk changes use `bulk_requests`, which first shows what would change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.operate.operation_start import Asked
from skep.cli.commands.results import bulk_requests, failure_groups
from skep.cli.commands.results.bulk_requests import moment
from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center, listing_group
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import Function, json_option, stacked
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.model.failures.dead_requests import Act
from skep.model.failures.failure_class import FailureClass
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.failures.dead_requests import FailureGroup
    from skep.wire.api.failures import Groups, GroupView

HEAD = ("REQUESTS", "FAILURE", "HOST", "LAST", "GROUP", "WHAT")
CLASSES = ", ".join(FailureClass)
#: Default number of listed groups.
SHOWN = 50
#: Options of the commands, as fields of a filter.
FIELDS = {
    "run": "run:",
    "job": "job:",
    "host": "host:",
    "failure": "error:",
    "status": "status:",
    "text": "detail:",
    "since": "died:>=",
    "until": "died:<",
    "group": "group:",
}
_AGE = "30min, 2h or 3d ago, or seconds since 1970."


def _failure_class(_: click.Context, __: click.Parameter, given: str) -> str:
    if given and given not in set(FailureClass):
        raise click.BadParameter(f"{given!r} is not a failure class; use one of {CLASSES}")
    return given


_filters = stacked(
    click.option("--run", default="", help="Run of the requests."),
    click.option("--job", default="", help="Job of the runs."),
    click.option("--host", default="", help="Host of the requests."),
    click.option(
        "--failure", default="", callback=_failure_class, help=f"Failure class: {CLASSES}."
    ),
    click.option("--status", type=click.IntRange(0, 65535), help="HTTP status."),
    click.option("--text", default="", help="Text in the detail of the last attempt."),
    click.option("--since", callback=moment, help=f"Died after this time: {_AGE}"),
    click.option("--until", callback=moment, help=f"Died before this time: {_AGE}"),
)


@listing_group("failures", lambda reach, as_json: _list(reach, {}, SHOWN, as_json))
def command() -> None:
    """List failures by cause; show, retry, cancel or forget them.

    Filters are combined with AND.
    """


@command.command("ls")
@_filters
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=SHOWN, help="Maximum number of groups."
)
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, limit: int, as_json: bool, **wanted: Any) -> None:
    """List groups of dead requests, largest first. Filters are combined with AND."""
    _list(reach, wanted, limit, as_json)


def _list(reach: CenterAddress, wanted: dict[str, Any], limit: int, as_json: bool) -> None:
    from skep.wire.api.failures import WhichFailures

    which = WhichFailures(**said(wanted), limit=limit)
    answer = ask(reach, lambda api: api.failures.list(which))
    show_json(answer) if as_json else show(groups_table(answer))


def said(wanted: dict[str, Any]) -> dict[str, Any]:
    """The filters that were given."""
    return {name: value for name, value in wanted.items() if value not in ("", None)}


def groups_table(answer: Groups) -> str:
    """As text."""
    if not answer.items:
        return "no dead requests"
    now = SystemClock().now()
    rest = answer.requests - sum(group.requests for group in answer.items)
    lines = [table(HEAD, [_row(group, now) for group in answer.items], spare=("LAST",))]
    if rest > 0:
        lines.append(f"and {rest} in smaller groups; --limit shows more")
    return "\n".join(lines)


def _row(group: FailureGroup, now: float) -> tuple[object, ...]:
    kind = f"{group.failure} {group.status or ''}".strip()
    last = f"{age(now - group.last_at)} ago"
    return f"{group.requests:,}", kind, group.host, last, group.group, group.text[:100]


@command.command("show")
@click.argument("group")
@click.option("--run", default="", help="Only requests of this run.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, help="Maximum number of requests."
)
@wide_option
@json_option
@calls_center
def show_group(reach: CenterAddress, group: str, run: str, limit: int, as_json: bool) -> None:
    """Show requests of a group, each with its last attempt."""
    from skep.wire.api.failures import WhichDead

    which = WhichDead(run=run, limit=limit)
    view = ask(reach, lambda api: api.failures.show(group, which))
    show_json(view) if as_json else show(group_text(view))


def group_text(view: GroupView) -> str:
    """As text."""
    group, now = view.group, SystemClock().now()
    head = f"{group.requests:,} x {group.failure} {group.status or ''}".rstrip()
    rows = [
        (item.id, Id(item.run), Id(item.agent), age(now - item.died_at), item.uri)
        for item in view.items
    ]
    detail = view.items[0].detail if view.items else ""
    lines = (f"{head}, host {group.host}", group.text, f"such as: {detail}", "")
    return "\n".join(
        (*lines, table(("REQUEST", "RUN", "AGENT", "AGE", "URI"), rows, spare=("AGENT",)))
    )


def _acting(function: Function) -> Function:
    return stacked(
        click.argument("group", required=False, default=""),
        _filters,
        bulk_requests.batch_options("Every dead request."),
        json_option,
        calls_center,
    )(function)


def _as_it_is(function: Any) -> Any:
    return function


_old_revision = click.option(
    "--old-revision",
    is_flag=True,
    help="Use the job as it was when the run began. Default: the job as it is now.",
)


def _act(name: Act, text: str, more: Callable[[Any], Any] = _as_it_is) -> None:
    @command.command(name, help=text, short_help=text.partition(".")[0] + ".")
    @_acting
    @more
    def act(
        reach: CenterAddress,
        group: str,
        everything: bool,
        dry_run: bool,
        yes: bool,
        wait: bool,
        as_json: bool,
        old_revision: bool = False,
        **wanted: Any,
    ) -> int:
        given = said({**wanted, "group": group})
        if not given and not everything:
            raise click.UsageError(
                "no requests are selected; give a GROUP, a filter such as --run, or --all"
            )
        text = bulk_requests.filter_text(given, FIELDS)
        arguments = {"old_revision": True} if old_revision else {}
        sure = bulk_requests.without_question(yes, as_json)
        # The API knows it as delete.
        does = "delete" if name == "forget" else name
        asked = Asked(does, "failures", text, everything, dry_run, sure, wait, 0, arguments)
        return asyncio.run(bulk_requests.change(reach, asked, as_json))


_act(
    "retry",
    "Retry dead requests. Their failure count is reset; their history remains. Requests of a job "
    "use its current revision, which is printed; with --old-revision, they use the revision with "
    "which their run began. Filters are combined with AND.",
    _old_revision,
)
_act("cancel", "Cancel dead requests. They count as cancelled; their history remains.")
_act("forget", "Delete dead requests of ended runs. The ledger still counts them.")

failure_groups.add_to(command)
