"""Decides whether the wall clock can be trusted. Run by centers before they fire what is due.

A clock that is wrong for a moment must not fire the schedules of a whole day. After a step the
center waits and checks that the clock stays.
"""

from __future__ import annotations

from skep.runtime.clock import Clock

#: Difference in seconds between the two clocks that counts as a step.
STEP = 5.0
#: Seconds without a step before the wall clock is trusted again.
HOLD = 20.0


class ClockSteps:
    """Compares the wall clock with the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart = clock.now() - clock.monotonic()
        self._not_before = clock.monotonic()
        self._first_apart = self._apart
        #: The clock was ahead of its value at the start and was corrected since. A clock that was
        #: only set back may be wrong now, and changes no plan.
        self.put_right = False

    def believed(self) -> bool:
        """False for a while after a step, forward or back."""
        monotonic = self._clock.monotonic()
        apart = self._clock.now() - monotonic
        if abs(apart - self._apart) > STEP:
            self._not_before = monotonic + HOLD
            was_ahead = self._apart - self._first_apart > STEP
            is_right = abs(apart - self._first_apart) <= STEP
            self.put_right = self.put_right or (was_ahead and is_right)
        self._apart = apart
        return monotonic >= self._not_before
