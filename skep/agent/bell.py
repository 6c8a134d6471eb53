"""A wake-up for one loop: it waits for a ring or for a time, by the clock it was given."""

from __future__ import annotations

import asyncio

from skep.runtime.clock import Clock


class Bell:
    """Rings are not counted: any number of them before a wait ends that wait once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake whoever waits, or the next one who does."""
        self._event.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """True when it rang, False when the time was over first."""
        if seconds is None:
            await self._event.wait()
        elif not self._event.is_set():
            await self._race(seconds)
        rang = self._event.is_set()
        self._event.clear()
        return rang

    async def _race(self, seconds: float) -> None:
        ring = asyncio.ensure_future(self._event.wait())
        alarm = asyncio.ensure_future(self._clock.sleep(max(seconds, 0)))
        try:
            await asyncio.wait((ring, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            alarm.cancel()
