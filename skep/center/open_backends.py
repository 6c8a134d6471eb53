"""Opens the servers that a center needs, with a limited wait for those that are starting.

Store, archive and bus share one deadline (`center.start_wait`). Only temporary errors are
retried; a wrong setting or a damaged file ends the start at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random

from skep.errors import DiskFailed, DiskFull, Unavailable
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import retry

log = logging.getLogger(__name__)

_AGAIN = Backoff(first=0.1, cap=2.0)


class Opening:
    """One start of a center. `seconds` limits the waits of all `ready` calls together."""

    def __init__(self, seconds: float, clock: Clock, rng: Random) -> None:
        self._seconds = seconds
        self._deadline = clock.monotonic() + seconds
        self._clock = clock
        self._rng = rng

    async def ready(self, name: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeat `attempt` until it succeeds; raises its Unavailable after the deadline."""
        told = ""

        def decide(error: Unavailable, failures: int) -> float | None:
            nonlocal told
            if isinstance(error, DiskFull | DiskFailed):
                return None
            told = self._explain(name, error, told)
            return self._pause(failures)

        await retry(attempt, Unavailable, decide, self._clock.sleep)
        if told:
            log.info("the %s answers; the start continues", name)

    def _explain(self, name: str, error: Unavailable, told: str) -> str:
        """Log a reason when it is new; raise it when there is no time left."""
        if error.detail != told:
            line = "waiting up to %g s for the %s (center.start_wait): %s"
            log.warning(line, self._seconds, name, error.detail)
        if self._clock.monotonic() >= self._deadline:
            raise type(error)(
                f"{error.detail}; gave up after {self._seconds:g} s (center.start_wait)"
            ) from error
        return error.detail

    def _pause(self, tries: int) -> float:
        left = max(self._deadline - self._clock.monotonic(), 0.0)
        return min(_AGAIN.delay(tries, self._rng), left)
