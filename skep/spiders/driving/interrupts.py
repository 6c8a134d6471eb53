"""Signals to a spider's process: the first one pauses its run, the second one ends it at once.

Plain handlers and not those of the event loop: they must work while the spider's code hangs.
Even after the second signal nothing is half stored.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts(Protocol):
    """What a process does about signals, beside the pause. Called inside a signal handler: no
    method waits."""

    def first(self) -> None:
        """The run pauses after the block in hand."""

    def second(self, number: int) -> None:
        """Ends the process."""


@contextmanager
def pausing(pause: Callable[[], None], interrupts: Interrupts) -> Iterator[None]:
    """While this is open, the first signal calls `pause` in the event loop."""
    loop = asyncio.get_running_loop()
    is_first = True

    def signalled(number: int, _: object) -> None:
        nonlocal is_first
        if not is_first:
            interrupts.second(number)
            return
        is_first = False
        interrupts.first()
        loop.call_soon_threadsafe(pause)

    before = [signal.signal(number, signalled) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


def die_of(number: int) -> None:
    """End this process as the signal would without a handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
