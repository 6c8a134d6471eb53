"""What a spider's loop asks of the center: its run's queue.

One driver at a time: opening the queue gives a token, and a checkpoint with an older token is
refused, so a spider that was believed dead cannot change the run. A checkpoint is stored whole
or not at all: blocks read, items found and requests added. Sent twice, it counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.wire.api.driver import FoundItem, Page, PageBlock, Reading, Turn, TurnDone

#: The types of the wire are those of the loop.
__all__ = ["FoundItem", "Page", "PageBlock", "Reading", "RunQueue", "Turn", "TurnDone"]


class RunQueue(Protocol):
    """The queue of one run. Raises Conflict (StaleToken) when another driver took over, and
    CenterUnreachable when no center answers after all retries."""

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        """Create the run or take it over; every other driver loses its right to write. A run
        whose driver sends no checkpoint for `patience` seconds fails; 0 = never."""

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        """Finished blocks, except those in `taken`. Returns at once when the run's state has
        changed since the last reading, or a person asks something of the driver."""

    async def checkpoint(self, turn: Turn) -> TurnDone:
        """Store it; may be sent again after a broken connection. An empty one is a sign of
        life."""

    async def end(self, verb: str, reason: str) -> None:
        """The driver's last word: pause, fail or finish, and why. Raises StaleToken."""

    async def ledger(self) -> Ledger:
        """The run's requests by state."""

    async def move(self, verb: str) -> None:
        """What a person does: pause, continue, finish or cancel."""
