"""Bells: one rings, others wake. For loops and long polls in one process.

A ring says only that something may have changed. Whoever looks first and waits second
must take the ticket before looking, or a ring in between would be missed.
"""

from __future__ import annotations

import asyncio

Ticket = asyncio.Event


class Bell:
    """Many wait, all wake."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake everybody who holds a ticket."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def ticket(self) -> Ticket:
        """Good for the next ring."""
        return self._event


class Nudge:
    """One waits; a ring that came before is remembered."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """True when it rang, now or before; False when the time was over."""
        rang = await within(self._event, seconds)
        self._event.clear()
        return rang


async def within(ticket: Ticket, seconds: float) -> bool:
    """Wait for the ring behind a ticket; False when the time was over."""
    try:
        async with asyncio.timeout(seconds):
            await ticket.wait()
    except TimeoutError:
        return False
    return True
