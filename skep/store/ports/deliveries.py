"""The store's contract for the delivery of items into sinks. Used by `jobs`.

Run by centers only. Positions of sinks are stored here and nowhere else, so that any center
can continue where another one stopped. The rules of `store/ports` apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.delivery import Delivery, DeliveryLease, DeliveryState, DeliveryView, RejectedItem
from skep.model.states import RunState
from skep.store.ports.checkpoints import KeptItem


class Deliveries(Protocol):
    """One row for each run and sink. Methods that take a lease raise LostLease when another
    center has taken the delivery since, or when it is not open."""

    async def open(self, new: Sequence[Delivery], now: float) -> None:
        """Store new deliveries. Of the known ones, open ones become due now, and done ones are
        opened again. Deliveries that a user gave up stay given up."""

    async def adopt(self, new: Delivery) -> None:
        """Import a position that was stored elsewhere; a higher stored position stays."""

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[Delivery]:
        """Renew the deliveries of this center, and take open deliveries that are due and not held,
        up to `limit` in all; returns all that it holds now. Taking one raises its lease, renewing
        it does not."""

    async def look(self, lease: DeliveryLease) -> tuple[RunState | None, bool]:
        """(state of the run, None when there is no such run; whether refused items wait to be
        sent again)."""

    async def save(self, lease: DeliveryLease, position: int, added: int, now: float) -> None:
        """The sink has everything up to `position`, `added` items more than before."""

    async def failed(self, lease: DeliveryLease, error: str, again_at: float, now: float) -> None:
        """Count a failed attempt and release it until then."""

    async def rest(self, lease: DeliveryLease, again_at: float) -> None:
        """Release it until then, without a failure."""

    async def done(self, lease: DeliveryLease, now: float) -> bool:
        """Close it; False, and nothing changes, when refused items wait to be sent again."""

    async def release(self, holder: str) -> None:
        """Release all deliveries of a center: another one can take them at once."""

    async def of(self, run: str) -> list[DeliveryView]:
        """Every delivery of a run, by sink."""

    async def unfinished(self, limit: int) -> list[DeliveryView]:
        """Open deliveries that have failed or whose run has ended, the oldest first."""

    async def decide(self, run: str, sink: str, state: DeliveryState, now: float) -> list[Delivery]:
        """A user retries (`open`, due now) or gives up; "" means every sink of the run.
        Returns the changed deliveries."""

    async def reject(self, lease: DeliveryLease, item: int, reason: str, now: float) -> None:
        """The sink refused an item; each repeated call is counted."""

    async def rejected(self, run: str, after: int, limit: int) -> list[RejectedItem]:
        """Sorted by number, those over `after`."""

    async def resend(self, run: str, sink: str, numbers: Sequence[int], now: float) -> int:
        """Mark refused items to be sent again: those numbers, or all of the sink ("" = of every
        sink); their deliveries become open and due. Returns how many."""

    async def to_resend(
        self, lease: DeliveryLease, limit: int
    ) -> list[tuple[RejectedItem, KeptItem | None]]:
        """In the order of their tickets; None for an item that was deleted."""

    async def resent(self, lease: DeliveryLease, no: int, reason: str, now: float) -> None:
        """The sink accepted the item, or with a reason refused it again."""
