"""`skep data deliveries|retry|give-up|rejected|resend`: the delivery of items to sinks.

It only calls the center; the centers deliver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import (
    FilterCommand,
    ListQuery,
    filter_options,
    no_match,
    plain_word,
    show_page,
)
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.deliveries import (
        DeliveryLine,
        DeliveryLines,
        DeliveryVerb,
        RejectedLine,
        RejectedLines,
    )
    from skep.wire.client.api import CenterApi

#: Maximum number of listed deliveries.
SHOWN = 1000
HEAD = ("RUN", "SINK", "STATE", "DELIVERED", "PENDING", "REJECTED", "PLACE", "LAST ERROR")
sink_option = click.option("--sink", default="", help="Key of one sink. Default: all sinks.")


@click.command("deliveries", cls=FilterCommand)
@click.argument("run", required=False)
@filter_options("deliveries", SHOWN)
@wide_option
@json_option
@calls_center
def deliveries(reach: CenterAddress, run: str | None, query: ListQuery, as_json: bool) -> None:
    """Show the deliveries of a run; without RUN, pending deliveries: all, or those that match.

    For example: `skep data deliveries job:quotes tries:>3`
    """
    if run and _is_term(run):
        query = replace(query, words=(plain_word(run), *query.words))
        run = None
    if run and query.given:
        raise click.UsageError("give a RUN or a filter; `run:NAME` in a filter selects a run")
    answer = ask(reach, lambda api: api.deliveries.of_run(run) if run else _pending_of(api, query))
    if as_json:
        show_json(answer)
        return
    nothing = f"the job of {run} has no sinks" if run else "no pending deliveries"
    missing = no_match(query, answer, nothing)
    text = deliveries_table(answer.items, SystemClock().now()) if answer.items else missing
    show_page(text, answer, len(answer.items))


def _is_term(word: str) -> bool:
    """Whether the word cannot be the name of a run."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", word) is None


async def _pending_of(api: CenterApi, query: ListQuery) -> DeliveryLines:
    from skep.wire.api.deliveries import DeliveryPage

    return await query.find(api, api.deliveries.list, DeliveryPage)


@click.command("retry")
@click.argument("run")
@sink_option
@json_option
@calls_center
def retry(reach: CenterAddress, run: str, sink: str, as_json: bool) -> None:
    """Deliver the items of a run now, even if the delivery was given up."""
    _change(reach, run, "retry", sink, as_json)


@click.command("give-up")
@click.argument("run")
@sink_option
@json_option
@calls_center
def give_up(reach: CenterAddress, run: str, sink: str, as_json: bool) -> None:
    """Stop delivering the items of a run. The run keeps the items."""
    _change(reach, run, "give-up", sink, as_json)


def _change(reach: CenterAddress, run: str, verb: DeliveryVerb, sink: str, as_json: bool) -> None:
    from skep.wire.api.deliveries import WhichSink

    _show(ask(reach, lambda api: api.deliveries.change(run, verb, WhichSink(sink))), as_json)


@click.command("rejected")
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, help="Only items with higher numbers.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="Maximum number.")
@wide_option
@json_option
@calls_center
def rejected(reach: CenterAddress, run: str, after: int, limit: int, as_json: bool) -> None:
    """List items that sinks rejected; `skep data resend RUN` sends them again."""
    from skep.wire.api.deliveries import RejectedPage

    answer = ask(reach, lambda api: api.deliveries.rejected(run, RejectedPage(after, limit)))
    show_json(answer) if as_json else show(_rejected_table(answer))


@click.command("resend")
@click.argument("run")
@click.argument("numbers", nargs=-1, type=click.IntRange(1))
@sink_option
@json_option
@calls_center
def resend(
    reach: CenterAddress, run: str, numbers: tuple[int, ...], sink: str, as_json: bool
) -> None:
    """Send rejected items again: all, or the NUMBERS that `skep data rejected RUN` shows."""
    from skep.wire.api.deliveries import Resend

    answer = ask(reach, lambda api: api.deliveries.resend(run, Resend(sink, numbers)))
    show_json(answer) if as_json else show(f"{answer.items} rejected items will be sent again")


def pending_in_words(lines: Sequence[DeliveryLine]) -> str:
    """The items that the sinks of a run still lack, as text; "" if there are none."""
    open_ = [line for line in lines if line.state != "done" and line.pending]
    return "; ".join(_pending(line) for line in open_)


def deliveries_table(lines: Sequence[DeliveryLine], now: float) -> str:
    """As text."""
    return table(HEAD, [_row(line, now) for line in lines])


def _pending(line: DeliveryLine) -> str:
    state = ", given up" if line.state == "given_up" else ""
    error = f": {line.error}" if line.error else ""
    return f"{line.pending:,} items not delivered to {line.place}{state}{error}"


def _row(line: DeliveryLine, now: float) -> tuple[object, ...]:
    since = f" ({age(now - line.error_at)} ago)" if line.error else ""
    counts = (line.delivered, line.pending, line.rejected)
    return Id(line.run), line.sink, line.state, *counts, line.place, f"{line.error}{since}"


def _rejected_table(answer: RejectedLines) -> str:
    now = SystemClock().now()
    head = ("NUMBER", "ITEM", "SINK", "TRIES", "AGE", "STATE", "REASON")
    more = f"\nmore: --after {answer.next}" if answer.next else ""
    return table(head, [_rejected(line, now) for line in answer.items]) + more


def _rejected(line: RejectedLine, now: float) -> tuple[object, ...]:
    state = "resending" if line.resending else ""
    since = age(now - line.at)
    return line.number, line.item, line.sink, line.tries, since, state, line.reason


def _show(answer: DeliveryLines, as_json: bool) -> None:
    if as_json:
        show_json(answer)
    else:
        show(deliveries_table(answer.items, SystemClock().now()))
