"""Retries for long-running commands: `--wait` and `--follow` survive short center outages.

Only for calls that read, because they are safe to repeat. A command with a single call fails
immediately if no center answers; a command that has waited for minutes survives a restart.
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

#: Maximum time without an answer from any center.
AWAY_SECONDS = 60.0
AGAIN_SECONDS = 0.5


async def with_retries(
    ask: Callable[[], Awaitable[T]], clock: Clock, seconds: float = AWAY_SECONDS
) -> T:
    """Return the answer; raise the last error after `seconds` without an answer."""
    deadline = math.inf

    def decide(error: SkepError, failures: int) -> float | None:
        nonlocal deadline
        if not error.retryable:
            return None
        if failures == 1:
            deadline = clock.monotonic() + seconds
            say(f"{error.detail}; retrying for {seconds:.0f} s")
        return AGAIN_SECONDS if clock.monotonic() < deadline else None

    return await retry(ask, SkepError, decide, clock.sleep)
