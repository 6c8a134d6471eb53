"""Watches a run until all of its requests have ended, with a progress bar on stderr.

Run by commands that wait. Looking at a run never changes it, and a command that stops
looking stops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skep.cli.terminal.call_retries import with_retries
from skep.cli.terminal.output import say
from skep.cli.terminal.progress import Progress
from skep.model.ledger import Ledger
from skep.runtime.clock import Clock

if TYPE_CHECKING:
    from skep.wire.client import CenterClient

LOOK_EVERY = 0.1
#: Rows are counted for long; the running counts are there at once, unless a center is frozen.
AUDIT_SECONDS, COUNT_SECONDS = 60.0, 15.0

Look = Callable[[Ledger], Awaitable[None]]


class WaitedLongEnough(Exception):
    """The time to wait was over; the work goes on."""


def still_running(run: str) -> str:
    """What to type about a run that goes on."""
    return f"run {run} goes on: `skep runs show {run}` shows it, `skep runs cancel {run}` ends it"


@contextmanager
def detached(run: str) -> Iterator[None]:
    """Ctrl-C ends the command and not the run, and says so."""
    try:
        yield
    except asyncio.CancelledError:
        say(f"\n{still_running(run)}")
        raise


async def ledger_of(client: CenterClient, run: str, *, audit: bool = False) -> Ledger:
    """The running counts, or with `audit` a count of the rows themselves."""
    from skep.wire.api.center import WhichLedger

    api = client.api_within(AUDIT_SECONDS if audit else COUNT_SECONDS)
    return (await api.center.ledger(WhichLedger(audit, run))).ledger


async def follow(
    client: CenterClient,
    run: str,
    progress: Progress,
    clock: Clock,
    seconds: float | None = None,
    look: Look | None = None,
) -> Ledger:
    """The ledger when nothing is open any more; raises WaitedLongEnough."""
    deadline = None if seconds is None else clock.monotonic() + seconds
    try:
        with detached(run):
            while True:
                ledger = await with_retries(lambda: ledger_of(client, run), clock)
                progress.update(ledger.accepted - ledger.open, ledger.accepted, ledger.dead)
                if look is not None:
                    await look(ledger)
                if not ledger.open:
                    return ledger
                if deadline is not None and clock.monotonic() >= deadline:
                    raise WaitedLongEnough
                await clock.sleep(LOOK_EVERY)
    finally:
        progress.end()
