"""Ends the process of a spider whose code blocks everything and ignores signals.

Runs in a process that does nothing but drive one spider. Plain Python code is interrupted by
an alarm; code inside a C library may not listen. The interpreter's own watchdog thread needs
no Python: it prints where the code hangs and ends the process. The center notices the silence
and fails the run.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skep.runtime.clock import Clock

#: Seconds between two restarts of the timer, or a quarter of the time that is allowed.
WIND_EVERY = 5.0


@asynccontextmanager
async def watchdog(seconds: float, clock: Clock) -> AsyncIterator[None]:
    """While this is open the event loop may be blocked for `seconds` at most; 0 = no limit."""
    if not seconds:
        yield
        return
    task = asyncio.create_task(_wind_up(seconds, min(WIND_EVERY, seconds / 4), clock))
    try:
        yield
    finally:
        task.cancel()
        faulthandler.cancel_dump_traceback_later()


async def _wind_up(seconds: float, every: float, clock: Clock) -> None:
    while True:
        place = sys.__stderr__ or sys.stderr
        faulthandler.dump_traceback_later(seconds + every, exit=True, file=place)
        await clock.sleep(every)
