"""Calls of commands that stay: `--wait` and `--follow` outlive centers that are away for a while.

Only for questions, which may be asked again. A command that asks once says at once that no
center answers; one that has waited for minutes does not end because of a restart.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skep.cli.terminal.output import say
from skep.errors import SkepError
from skep.runtime.clock import Clock
from skep.runtime.retry import retry

T = TypeVar("T")

#: So long nobody may answer.
AWAY_SECONDS = 60.0
AGAIN_SECONDS = 0.5


async def with_retries(
    ask: Callable[[], Awaitable[T]], clock: Clock, seconds: float = AWAY_SECONDS
) -> T:
    """The answer; raises the last error when there was none for so long."""
    deadline = math.inf

    def decide(error: SkepError, failures: int) -> float | None:
        nonlocal deadline
        if not error.retryable:
            return None
        if failures == 1:
            deadline = clock.monotonic() + seconds
            say(f"{error.detail}; trying again for {seconds:.0f} s")
        return AGAIN_SECONDS if clock.monotonic() < deadline else None

    return await retry(ask, SkepError, decide, clock.sleep)
