"""Wakes the supervisor of runs: to claim runs, or to look at one that it supervises. Centers only.

Made before the supervisor, so that other parts of a center can wake it without knowing it. A
wake-up says only that something may have changed.
"""

from __future__ import annotations

from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp


class RunWakeUps:
    """One wake-up for claims, and one for each run that is supervised here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: There may be a run to claim.
        self.claims = WakeUp(clock)
        self._runs: dict[str, WakeUp] = {}

    def wake(self, run: str) -> None:
        """The state of a run may have changed: its supervisor checks it, or may claim it."""
        if run in self._runs:
            self._runs[run].notify()
        self.claims.notify()

    def add(self, run: str) -> None:
        """A run is supervised here from now on."""
        self._runs[run] = WakeUp(self._clock)

    def remove(self, run: str) -> None:
        del self._runs[run]

    async def wait(self, run: str, seconds: float | None = None) -> bool:
        """Wait for a wake-up of a run that is supervised here; False when the time was over."""
        return await self._runs[run].wait(seconds)
