"""A server of a test that `async with` starts and stops.

Runs in test processes only. Subclasses define what is served.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class ListeningServer(ABC):
    """Call `start` and `stop`, or use it with `async with`."""

    @abstractmethod
    async def start(self) -> None:
        """Listen; its address is known afterwards."""

    @abstractmethod
    async def stop(self) -> None:
        """Close the port and every connection. No effect if it does not listen."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
