"""Calls of commands that stay: `--wait` and `--follow` outlive centers that are away for a while.

Only for questions, which may be asked again. A command that asks once says at once that no
center answers; one that has waited for minutes does not end because of a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from skep.cli.output import say
from skep.errors import SkepError
from skep.runtime.clock import Clock

T = TypeVar("T")

#: So long nobody may answer.
AWAY_SECONDS = 60.0
AGAIN_SECONDS = 0.5


async def patiently(
    ask: Callable[[], Awaitable[T]], clock: Clock, seconds: float = AWAY_SECONDS
) -> T:
    """The answer; raises the last error when there was none for so long."""
    until: float | None = None
    while True:
        try:
            return await ask()
        except SkepError as error:
            if not error.retryable:
                raise
            if until is None:
                until = clock.monotonic() + seconds
                say(f"{error.detail}; trying again for {seconds:.0f} s")
            if clock.monotonic() >= until:
                raise
        await clock.sleep(AGAIN_SECONDS)
