"""Bulk operations as text: a table, one operation with its results, progress while it runs.

Used by `skep bulk` and `skep op`. It only reads.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.call_retries import with_retries
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.output import age, harmless, say, table
from skep.model.operations import OPEN_OPERATIONS, OperationState
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.operations import OperationPage, OperationPlan, OperationView
    from skep.wire.client import CenterClient

HEAD = ("OPERATION", "STATE", "ACT", "RESOURCE", "OBJECTS", "LEFT", "AGE", "BY", "FILTER")
LOOK_EVERY = 0.3


def page_table(page: OperationPage) -> str:
    """As text."""
    if not page.items:
        return "no bulk operations yet; `skep bulk` starts one"
    now = SystemClock().now()
    rows = [_row(one, now) for one in page.items]
    text = table(HEAD, rows, spare=("AGE", "BY", "LEFT"))
    more = f"\nmore: --before {page.next}" if page.next is not None else ""
    return text + more


def _row(one: OperationView, now: float) -> tuple[object, ...]:
    left = one.matched - one.settled
    ago = age(now - one.created_at)
    head = (one.id, one.state, one.act, one.resource, f"{one.matched:,}", f"{left:,}")
    return *head, ago, one.creator, one.filter[:100]


def in_words(one: OperationView) -> str:
    """One operation and its results."""
    lines = [
        f"operation {one.id}: {one.act} {one.resource} that match {one.filter or 'everything'!r}",
        f"{one.state}: {one.settled:,} of {one.matched:,} processed; started by {one.creator}",
    ]
    if one.error:
        lines.append(harmless(f"error: {one.error}"))
    for result in one.results:
        reason = f" ({result.reason})" if result.reason else ""
        shown = harmless(", ".join(result.examples[:3]))
        lines.append(f"  {result.count:,} {result.outcome}{reason}: {shown}")
    lines += [f"  {harmless(note)}" for note in one.notes]
    if one.file is not None and one.state is OperationState.DONE:
        lines.append(f"  file: {one.file.lines:,} lines, {one.file.bytes:,} bytes")
        lines.append(f"  `skep op download {one.id} -o FILE` saves it")
    return "\n".join(lines)


def plan_in_words(act: str, resource: str, plan: OperationPlan) -> str:
    """What would change."""
    count = f"{plan.matched:,}" if plan.exact else f"{plan.matched:,} or more"
    lines = [f"{act} would cover {count} {resource}; nothing was changed"]
    lines += [harmless(f"  {one.name}  {one.text}".rstrip()) for one in plan.examples]
    return "\n".join(lines)


async def watch(client: CenterClient, number: int) -> OperationView:
    """Wait until the operation has ended; shows progress on a terminal. Ctrl-C ends only the
    command."""
    clock = SystemClock()
    try:
        while True:
            one = await with_retries(lambda: client.api.operations.show(number), clock)
            if one.state not in OPEN_OPERATIONS:
                return one
            _progress(one)
            await clock.sleep(LOOK_EVERY)
    except asyncio.CancelledError:
        say(f"\noperation {number} continues: `skep op cancel {number}` ends it")
        raise
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)


def _progress(one: OperationView) -> None:
    if sys.stderr.isatty():
        text = f"\r\x1b[K{one.state}: {one.settled:,} of {one.matched:,}"
        click.echo(text, nl=False, err=True)


def exit_of(one: OperationView) -> int:
    """0 when nothing failed, 7 when a part failed, 1 when nothing was done."""
    if one.state in OPEN_OPERATIONS:
        return ExitCode.OK
    if one.state is OperationState.DONE and not _count(one, "failed"):
        return ExitCode.OK
    return ExitCode.PARTLY if _count(one, "done") else ExitCode.FAILED


def _count(one: OperationView, outcome: str) -> int:
    return sum(result.count for result in one.results if result.outcome == outcome)
