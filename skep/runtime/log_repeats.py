"""Throttles repeated log lines: the first at once, the next ones after a pause.

For every process; contains no product terms.
"""

from __future__ import annotations

from collections.abc import Hashable

from skep.runtime.clock import Clock

#: Seconds between two lines about the same condition.
EVERY = 60.0
#: Conditions that are remembered; the oldest is forgotten first.
LIMIT = 1000


class Repeats:
    """Counts the lines that are not logged."""

    def __init__(self, clock: Clock, every: float = EVERY) -> None:
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


class KeyedRepeats:
    """The same for conditions that are told apart by a key, such as a run and an error code."""

    def __init__(self, clock: Clock, every: float = EVERY) -> None:
        self._clock = clock
        self._every = every
        self._known: dict[Hashable, Repeats] = {}

    def due(self, key: Hashable) -> int:
        """As `Repeats.due`."""
        if key not in self._known and len(self._known) >= LIMIT:
            del self._known[next(iter(self._known))]
        return self._known.setdefault(key, Repeats(self._clock, self._every)).due()


def repeated(times: int) -> str:
    """The end of a line that stands for several: "" for one."""
    return f" ({times} times since the last line)" if times > 1 else ""
