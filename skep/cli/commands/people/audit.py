"""`skep audit`: lists changes and refused calls, newest first, by filter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import FilterCommand, filter_argument, text_of
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.people.audit import AuditRow

HEAD = ("ID", "WHEN", "USER", "ACTION", "OBJECT", "OUTCOME", "TIMES", "ADDRESS", "DETAIL")
_PAGE = 1000


@click.command("audit", cls=FilterCommand)
@filter_argument("audit")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.option("--before", type=click.IntRange(0), default=0, metavar="ID",
              help="Only rows below this ID: the next page.")  # fmt: skip
@wide_option
@json_option
@calls_center
def command(
    reach: CenterAddress, words: tuple[str, ...], limit: int, before: int, as_json: bool
) -> None:
    """List changes and refused calls, newest first.

    \b
    skep audit user:anna since:1d
    skep audit object:job:quotes outcome:done
    skep audit -user:token:* outcome:refused,failed
    """
    rows = asyncio.run(_rows(reach, words, limit, before))
    if as_json:
        show_json({"items": rows})
        return
    missing = "no rows match the filter" if words else "no changes yet"
    show(audit_table(rows, SystemClock().now()) if rows else missing)
    if len(rows) == limit:
        show(f"the newest {limit:,}; next: --before {rows[-1].id}")


async def _rows(
    reach: CenterAddress, words: Sequence[str], limit: int, before: int
) -> list[AuditRow]:
    """Read page by page: a page can be empty although there are more."""
    from skep.wire.api.people.audit import WhichAudit

    rows: list[AuditRow] = []
    after: int | None = before
    async with connected(reach) as client:
        text = await text_of(client.api, words, "audit")
        while after is not None and len(rows) < limit:
            asks = WhichAudit(text, min(_PAGE, limit - len(rows)), after)
            page = await client.api.audit.list(asks)
            rows += page.items
            after = page.next
    return rows


def audit_table(rows: Sequence[AuditRow], now: float) -> str:
    """As text."""
    lines = [
        (
            row.id,
            f"{age(now - row.at)} ago",
            row.who or "-",
            row.action,
            row.object or "-",
            row.outcome.value,
            row.times,
            row.address or "-",
            row.detail,
        )
        for row in rows
    ]
    return table(HEAD, lines, spare=("DETAIL", "ADDRESS", "TIMES", "ID"))
