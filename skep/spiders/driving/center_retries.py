"""Calls of a spider's process to its center, tried again while they may work later.

Only for calls that may be sent twice: a question, or a message that counts once. It gives up
after a number of tries, and the error says how many.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from skep.errors import CenterUnreachable, SkepError
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import Attempts, retry

AGAIN = Backoff(first=0.2, cap=10.0)

T = TypeVar("T")
log = logging.getLogger(__name__)


class CenterRetries:
    """`call` with at most `tries` tries."""

    def __init__(self, clock: Clock, rng: Random, tries: int) -> None:
        self._clock = clock
        self._attempts = Attempts(AGAIN, rng, tries)

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer. Raises CenterUnreachable in the end, and at once an error that would stay
        the same."""
        try:
            return await retry(call, SkepError, self._pause, self._clock.sleep)
        except SkepError as error:
            if not error.retryable:
                raise
            tries = self._attempts.limit
            raise CenterUnreachable(f"{error.detail} (tried {tries} times)") from error

    def _pause(self, error: SkepError, failures: int) -> float | None:
        if not error.retryable:
            return None
        log.debug("%s; try %d", error.detail, failures)
        return self._attempts.pause(failures)
