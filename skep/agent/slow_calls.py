"""Detects calls to a center that take unusually long, so that the agent can check it.

Runs on the agent's event loop. It never aborts a call: a heartbeat decides whether the center is
silent, and then `wire/client/addresses.py` aborts its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds after which a report or a lease is slow.
SLOW_AFTER = 0.75


@contextmanager
def noticed_when_slow(notice: Callable[[], None]) -> Iterator[None]:
    """Call `notice` once if the block takes longer than `SLOW_AFTER`."""
    timer = asyncio.get_running_loop().call_later(SLOW_AFTER, notice)
    try:
        yield
    finally:
        timer.cancel()
