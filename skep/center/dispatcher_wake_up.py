"""Wakes the dispatcher, on the center that is the leader. Runs in a center.

One center dispatches at a time. Requests that other centers accept would wait until the leader
checks the store, so they wake it. A wake-up from another center is never passed on: two
centers would wake each other without end.
"""

from __future__ import annotations

from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp

#: The channel of these wake-ups.
CHANNEL = "dispatch"


class DispatcherWakeUp:
    """Set by every part that creates work; one loop waits for it, another passes it on."""

    def __init__(self, clock: Clock) -> None:
        self._here = WakeUp(clock)
        #: Set only for work of this center.
        self.elsewhere = WakeUp(clock)

    def request(self) -> None:
        """There are new requests, or room in the lanes."""
        self._here.notify()
        self.elsewhere.notify()

    def hear(self) -> None:
        """Another center has work for the dispatcher."""
        self._here.notify()

    async def wait(self, seconds: float) -> None:
        await self._here.wait(seconds)
