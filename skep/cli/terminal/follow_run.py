"""Follows a run until all of its requests have ended, with a progress bar on stderr.

Used by commands that wait. It only reads: neither following a run nor stopping changes the run.
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
#: Timeouts. An audit counts rows, which is slow; the running counts are fast, unless a center is
#: frozen.
AUDIT_SECONDS, COUNT_SECONDS = 60.0, 15.0

Look = Callable[[Ledger], Awaitable[None]]


class WaitedLongEnough(Exception):
    """The timeout of the command has passed; the work continues."""


def still_running(run: str) -> str:
    """The commands for a run that continues."""
    show, cancel = f"`skep runs show {run}`", f"`skep runs cancel {run}`"
    return f"run {run} continues: {show} shows it, {cancel} ends it"


@contextmanager
def detached(run: str) -> Iterator[None]:
    """On Ctrl-C, print that the run continues, because only the command ends."""
    try:
        yield
    except asyncio.CancelledError:
        say(f"\n{still_running(run)}")
        raise


async def ledger_of(client: CenterClient, run: str, *, audit: bool = False) -> Ledger:
    """The running counts; with `audit`, a count of the rows."""
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
    """Return the ledger when no request is open any more; raises WaitedLongEnough."""
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
