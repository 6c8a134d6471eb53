"""Limits of what a run waits for: start requests on their way, and time without any answer.

Runs in the spider's process. Requests found on pages are stored with the checkpoint of their
page and never held back; only what `start` yields is limited here.
"""

from __future__ import annotations

from skep.model.states import RunState
from skep.spiders.driving.page_parsing import FAIL, Stop
from skep.spiders.driving.stats import SILENCE
from skep.spiders.ports import PageBlock, Reading


class Outstanding:
    """Requests of `start` that were sent, minus those that came back. A request
    that the center retries counts once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent = 0
        self._returned = 0

    def sent(self, count: int) -> None:
        """`count` requests were new to the run."""
        self._sent += count

    def returned(self, block: PageBlock) -> None:
        """Count the pages that `start` asked for: those without a depth."""
        self._returned += sum(1 for page in block.pages if "d" not in page.meta)

    def room(self, still_open: int) -> int:
        """How many more may be sent. Expired requests do not come back, so no more count as on
        their way than the run has open."""
        # Starts of an earlier process come back to this one too.
        self._returned = min(self._returned, self._sent)
        return self._limit - min(self._sent - self._returned, still_open)


class SilenceBound:
    """Ends a run whose open requests get no answer for too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._heard = 0.0

    def begin(self, now: float) -> None:
        self._heard = now

    def hear(self, reading: Reading, now: float) -> None:
        """Raises Stop. A paused run, and requests that wait until a known time, do not count as
        silence."""
        expected = reading.open - reading.resting
        if reading.blocks or expected <= 0 or reading.state != RunState.RUNNING:
            self._heard = now
        if self._seconds and now - self._heard > self._seconds:
            raise Stop(
                SILENCE,
                f"{expected} requests are on their way and none came back for "
                f"{self._seconds:g} s; are there agents?",
                FAIL,
            )
