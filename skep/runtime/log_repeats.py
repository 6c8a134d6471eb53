"""Throttles repeated log lines: the first at once, the next ones after a pause.

For every process; contains no product terms.
"""

from __future__ import annotations

from skep.runtime.clock import Clock


class Repeats:
    """Counts the lines that are not logged."""

    def __init__(self, clock: Clock, every: float) -> None:
        self._clock = clock
        self._every = every
        self._said_at: float | None = None
        self._times = 0

    def due(self) -> int:
        """Occurrences since the last line, this one included; 0 = log nothing."""
        self._times += 1
        now = self._clock.monotonic()
        if self._said_at is not None and now - self._said_at < self._every:
            return 0
        times, self._times, self._said_at = self._times, 0, now
        return times

    def over(self) -> bool:
        """The condition has ended; True when a line had reported it."""
        said, self._said_at, self._times = self._said_at is not None, None, 0
        return said
