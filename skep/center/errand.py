"""Something for the dispatcher to do, whichever center has the turn. Runs in a center.

One center dispatches at a time. What comes in at the others would wait until that one looks by
itself, so they call it. A call from elsewhere is not passed on: two centers would call each
other for ever.
"""

from __future__ import annotations

from skep.runtime.bell import Nudge
from skep.runtime.clock import Clock

#: The channel of such calls.
CHANNEL = "dispatch"


class Errand:
    """Rung by whatever makes work; one loop waits for it, another one passes it on."""

    def __init__(self, clock: Clock) -> None:
        self._here = Nudge(clock)
        #: Rings only for what happened here.
        self.elsewhere = Nudge(clock)

    def ring(self) -> None:
        """Requests came, or room for them."""
        self._here.ring()
        self.elsewhere.ring()

    def hear(self) -> None:
        """Another center says so."""
        self._here.ring()

    async def wait(self, seconds: float) -> None:
        await self._here.wait(seconds)
