"""Retries a call after a failure: one loop for every process, and the pauses of endless loops.

After each failure a decision returns the seconds to pause, or None to give up; it gets the error
and the number of failures so far, and does not wait. `retry` waits and calls again. It retries
only the errors that the caller names and never hides the last one. Clock and randomness are
arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from skep.runtime.backoff import Backoff

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
#: The error and the number of failures so far -> seconds to pause; None = give up.
Decide = Callable[[E, int], float | None]
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Attempts:
    """At most `limit` calls (None = no limit), with growing pauses between them."""

    backoff: Backoff
    rng: Random
    limit: int | None = None

    def pause(self, failures: int) -> float | None:
        """Seconds before the next call; None = no next call. Failures count from 1."""
        if self.limit is not None and failures >= self.limit:
            return None
        return self.backoff.delay(failures, self.rng)


class Pauses:
    """Pauses of a loop that goes on after failures: longer with each failure in a row."""

    def __init__(self, backoff: Backoff, rng: Random) -> None:
        self._backoff = backoff
        self._rng = rng
        #: Failures in a row.
        self.failures = 0

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; seconds to pause after it."""
        self.failures += 1
        return self._backoff.delay(self.failures, self._rng)


async def retry(
    call: Callable[[], Awaitable[T]], on: type[E], decide: Decide[E], sleep: Sleep
) -> T:
    """The answer of `call`; raises its error when `decide` gives up, and other errors than `on` at
    once. An error in `decide` or `sleep` ends the retries too."""
    failures = 0
    while True:
        try:
            return await call()
        except on as error:
            failures += 1
            pause = decide(error, failures)
            if pause is None:
                raise
        await sleep(pause)
