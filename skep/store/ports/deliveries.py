"""What `jobs` asks of a store about the delivery of items into sinks.

Run by centers only. Positions of sinks are here and nowhere else, so that any center goes on
where another one stopped. The general promises stand in `store/ports`.
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
        """Keep those that are not there; of those that are, open ones become due now, and
        done ones are opened again. What a person gave up stays given up."""

    async def adopt(self, new: Delivery) -> None:
        """Keep a position that was stored elsewhere; a position that is further stays."""

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[Delivery]:
        """Renew what this center holds, and take open deliveries that are due and not held,
        up to `limit` in all; returns everything that it holds now. Taking one raises its
        lease, renewing it does not."""

    async def look(self, lease: DeliveryLease) -> tuple[RunState | None, bool]:
        """(state of the run, None when there is no such run; whether refused items wait to be
        sent again)."""

    async def save(self, lease: DeliveryLease, position: int, added: int, now: float) -> None:
        """The sink has everything up to `position`, `added` items more than before."""

    async def failed(self, lease: DeliveryLease, error: str, again_at: float, now: float) -> None:
        """Count a failed try and let go until then."""

    async def rest(self, lease: DeliveryLease, again_at: float) -> None:
        """Let go until then; nothing has failed."""

    async def done(self, lease: DeliveryLease, now: float) -> bool:
        """Close it; False, and nothing is changed, when refused items wait to be sent again."""

    async def release(self, holder: str) -> None:
        """Let go of everything: another center may take it at once."""

    async def of(self, run: str) -> list[DeliveryView]:
        """Every delivery of a run, by sink."""

    async def unfinished(self, limit: int) -> list[DeliveryView]:
        """Open deliveries that have failed or whose run has ended, the oldest first."""

    async def decide(self, run: str, sink: str, state: DeliveryState, now: float) -> list[Delivery]:
        """A person retries (`open`, due now) or gives up; "" means every sink of the run.
        Returns those that were changed."""

    async def reject(self, lease: DeliveryLease, item: int, reason: str, now: float) -> None:
        """The sink refused an item; told again it is counted."""

    async def rejected(self, run: str, after: int, limit: int) -> list[RejectedItem]:
        """By number, those over `after`."""

    async def resend(self, run: str, sink: str, numbers: Sequence[int], now: float) -> int:
        """Refused items shall be sent again: those numbers, or all of the sink ("" = of every
        sink); their deliveries become open and due. Returns how many."""

    async def to_resend(
        self, lease: DeliveryLease, limit: int
    ) -> list[tuple[RejectedItem, KeptItem | None]]:
        """In the order of their tickets; None for an item that is not kept any more."""

    async def resent(self, lease: DeliveryLease, no: int, reason: str, now: float) -> None:
        """The sink took it, or with a reason refused it once more."""
