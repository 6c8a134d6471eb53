"""Time as an argument. Every process gets its clock from its assembly, so that tests
and simulations can move it by hand. Nothing else may call `time.time`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What rooms may ask about time."""

    def now(self) -> float:
        """Seconds since the epoch, for what is stored and shown."""

    def monotonic(self) -> float:
        """Seconds that never jump, for ages and deadlines inside one process."""

    async def sleep(self, seconds: float) -> None:
        """Wait; a fake clock returns when its time has come."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
