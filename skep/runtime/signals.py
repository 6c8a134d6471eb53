"""Bells: one rings, others wake. For loops and long polls in one process.

A ring says only that something may have changed. Whoever looks first and waits second
must take the ticket before looking, or a ring in between would be missed.
"""

from __future__ import annotations

import asyncio

from skep.runtime.clock import Clock

Subscription = asyncio.Event


class Signal:
    """Many wait, all wake."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake everybody who holds a ticket."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def subscribe(self) -> Subscription:
        """Good for the next ring."""
        return self._event


class WakeUp:
    """One loop waits, for a ring or for a time by the clock it was given; a ring that came
    before is remembered, any number of them as one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake whoever waits, or the next one who does."""
        self._event.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """True when it rang, now or before; False when the time was over first."""
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


async def within(ticket: Subscription, seconds: float) -> bool:
    """Wait for the ring behind a ticket; False when the time was over."""
    try:
        async with asyncio.timeout(seconds):
            await ticket.wait()
    except TimeoutError:
        return False
    return True
