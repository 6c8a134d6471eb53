"""Time as an argument. Every process gets its clock from its assembly, so that tests and
simulations can advance it by hand. No other module may call `time.time`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The contract of a clock."""

    def now(self) -> float:
        """Seconds since the epoch, for stored and displayed times."""

    def monotonic(self) -> float:
        """Seconds that never jump, for durations and deadlines inside one process."""

    async def sleep(self, seconds: float) -> None:
        """Wait; a fake clock returns when it has been advanced far enough."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
