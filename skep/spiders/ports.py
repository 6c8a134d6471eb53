"""What a spider's loop asks of the center: its run's queue.

One driver at a time: opening the queue gives a token, and a turn under an older token is
refused, so a spider that was believed dead can do no harm. A turn is all or nothing: the
blocks that were read, the items found in them and the requests that they led to become
durable together. Told twice, it counts once.
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
    CenterUnreachable after its own patience with reconnecting is over."""

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        """Make the run, or take it over; ends the turn of any other driver. A driver that
        tells no turn for `patience` seconds is given up, and its run fails; 0 = never."""

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        """Finished blocks, except `taken` ones that are in hand already. Returns at once when
        the run's state is not that of the reading before, or something is asked."""

    async def checkpoint(self, turn: Turn) -> TurnDone:
        """Make it durable; may be told again after a broken line. An empty one is a sign of
        life."""

    async def end(self, verb: str, reason: str) -> None:
        """The driver's last word: pause, fail or finish, and why. Raises StaleToken."""

    async def ledger(self) -> Ledger:
        """Where the run's requests are."""

    async def move(self, verb: str) -> None:
        """What a person does: pause, continue, finish or cancel."""
