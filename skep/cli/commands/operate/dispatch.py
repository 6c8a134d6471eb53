"""`skep dispatch`: runs one dispatch round manually, and shows the dispatch log.

Centers dispatch automatically; use this to inspect a round or to start one early.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.dispatch import DispatchReport, DispatchRow
    from skep.wire.api.dispatches import Dispatches
    from skep.wire.client.api import CenterApi

HEAD = ("KIND", "JOB", "RUN", "LANE", "REQUESTS", "BLOCKS", "REASON")
LOG_HEAD = ("AGE", *HEAD, "ROUNDS", "SECONDS", "CENTER", "HOST")
#: Columns that are left out first on a narrow terminal. The name of a run starts with its job.
SPARE = ("HOST", "CENTER", "SECONDS", "ROUNDS", "JOB", "BLOCKS")
KINDS = click.Choice(["alert", "success", "failed"])


@click.command("dispatch", cls=FilterCommand)
@click.option("--dry-run", is_flag=True, help="Show what would be dispatched; change nothing.")
@click.option("--failed-only", is_flag=True, help="Only requests that have failed before.")
@click.option("--log", "of_log", is_flag=True, help="Show the log; nothing is dispatched.")
@filter_options("dispatches", 20)
@click.option("--run", default="", help="Rows of this run only, with --log.")
@click.option("--kind", type=KINDS, default=None, help="Rows of this kind only, with --log.")
@wide_option
@json_option
@calls_center
def command(
    reach: CenterAddress,
    dry_run: bool,
    failed_only: bool,
    of_log: bool,
    query: ListQuery,
    run: str,
    kind: Literal["alert", "success", "failed"] | None,
    as_json: bool,
) -> None:
    """Run one dispatch round manually, or show the dispatch log.

    The center dispatches automatically. A round takes at most N requests of each job (its
    setting `dispatch`), and only as many as fit into the lanes.

    A filter selects rows of the log: `skep dispatch --log kind:failed since:1h`.
    """
    from skep.wire.api.dispatches import DispatchOnce

    if of_log:
        found = ask(reach, lambda api: _log(api, query, run, kind or ""))
        if as_json:
            show_json(found)
        else:
            missing = no_match(query, found, log_table([]))
            text = log_table(found.items) if found.items else missing
            show_page(text, found, len(found.items))
        return
    if query.given:
        raise click.UsageError("a filter selects rows of the log; add --log to show it")
    once = DispatchOnce(dry_run=dry_run, failed_only=failed_only)
    report = ask(reach, lambda api: api.dispatches.dispatch(once))
    show_json(report) if as_json else show(report_text(report))


async def _log(api: CenterApi, query: ListQuery, run: str, kind: Any) -> Dispatches:
    from skep.wire.api.dispatches import DispatchPage

    return await query.find(api, api.dispatches.list, DispatchPage, run=run, kind=kind)


def report_text(report: DispatchReport) -> str:
    """A dispatch report as text: a line for each run and lane, and the sum."""
    verb = "would be dispatched" if report.dry_run else "were dispatched"
    place = f"{report.center} on {report.host}" if report.host else report.center
    summary = f"{report.size} requests {verb} in {report.seconds:.3f} s by {place}"
    if report.parked:
        summary += f"; {report.parked} wait for their hosts"
    if not report.rows:
        return f"{summary}; no other request waits"
    return f"{table(HEAD, [_row(row) for row in report.rows], SPARE)}\n{summary}"


def log_table(rows: Sequence[DispatchRow]) -> str:
    """Rows of the dispatch log as text, newest first."""
    if not rows:
        return "the dispatch log has no such rows"
    now = SystemClock().now()
    return table(LOG_HEAD, [_logged(row, now) for row in rows], SPARE)


def _row(row: DispatchRow) -> tuple[object, ...]:
    cells = (row.kind, row.job, Id(row.run), row.lane, row.size, row.blocks, row.reason)
    return tuple("-" if cell == "" else cell for cell in cells)


def _logged(row: DispatchRow, now: float) -> tuple[object, ...]:
    place = (Id(row.center), row.host or "-")
    return (age(now - row.at), *_row(row), row.rounds, f"{row.seconds:.3f}", *place)
