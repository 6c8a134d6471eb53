"""Signals between tasks of one process, for loops and long polls.

A signal only says that something may have changed. A task that checks first and waits second
must subscribe before the check, or it misses a signal sent in between.
"""

from __future__ import annotations

import asyncio

from skep.runtime.clock import Clock

Subscription = asyncio.Event


class Signal:
    """Wakes all tasks that wait for it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all subscribers."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def subscribe(self) -> Subscription:
        """Valid for the next `notify`."""
        return self._event


class WakeUp:
    """Wakes one loop, which waits for a call of `notify` or for a time by the clock it was given.
    Earlier calls are remembered, any number of them as one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake the waiting task, or the next one that waits."""
        self._event.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """True after a `notify`, now or before; False when the time ran out first."""
        if seconds is None:
            await self._event.wait()
        elif not self._event.is_set():
            await self._race(seconds)
        notified = self._event.is_set()
        self._event.clear()
        return notified

    async def _race(self, seconds: float) -> None:
        event = asyncio.ensure_future(self._event.wait())
        timeout = asyncio.ensure_future(self._clock.sleep(max(seconds, 0)))
        try:
            await asyncio.wait((event, timeout), return_when=asyncio.FIRST_COMPLETED)
        finally:
            event.cancel()
            timeout.cancel()


async def within(subscription: Subscription, seconds: float) -> bool:
    """Wait for the signal of a subscription; False when the time ran out."""
    try:
        async with asyncio.timeout(seconds):
            await subscription.wait()
    except TimeoutError:
        return False
    return True
