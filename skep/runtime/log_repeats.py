"""Log lines that would repeat: the first at once, the next ones after a pause.

Knows no product word; for every process.
"""

from __future__ import annotations

from skep.runtime.clock import Clock


class Repeats:
    """Counts what is not said."""

    def __init__(self, clock: Clock, every: float) -> None:
        self._clock = clock
        self._every = every
        self._said_at: float | None = None
        self._times = 0

    def due(self) -> int:
        """How often it happened since the last line, this time included; 0 = say nothing."""
        self._times += 1
        now = self._clock.monotonic()
        if self._said_at is not None and now - self._said_at < self._every:
            return 0
        times, self._times, self._said_at = self._times, 0, now
        return times

    def over(self) -> bool:
        """It does not happen any more; True when a line had said that it did."""
        said, self._said_at, self._times = self._said_at is not None, None, 0
        return said
