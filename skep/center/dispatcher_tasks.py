"""Something for the dispatcher to do, whichever center has the turn. Runs in a center.

One center dispatches at a time. What comes in at the others would wait until that one looks by
itself, so they call it. A call from elsewhere is not passed on: two centers would call each
other for ever.
"""

from __future__ import annotations

from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp

#: The channel of such calls.
CHANNEL = "dispatch"


class DispatcherTask:
    """Rung by whatever makes work; one loop waits for it, another one passes it on."""

    def __init__(self, clock: Clock) -> None:
        self._here = WakeUp(clock)
        #: Rings only for what happened here.
        self.elsewhere = WakeUp(clock)

    def request(self) -> None:
        """Requests came, or room for them."""
        self._here.notify()
        self.elsewhere.notify()

    def hear(self) -> None:
        """Another center says so."""
        self._here.notify()

    async def wait(self, seconds: float) -> None:
        await self._here.wait(seconds)
