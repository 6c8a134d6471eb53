"""Delivery of a run's items into one sink: its position, and the items that the sink refused.

Pure data. A delivery has its own lease: the run may have ended long ago, and any center may
continue the delivery.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from skep.model.jobs.job import SinkPart


class DeliveryState(StrEnum):
    """An open delivery is retried until it succeeds or a user gives it up."""

    OPEN = "open"
    DONE = "done"
    GIVEN_UP = "given_up"


class DeliveryLease(msgspec.Struct, frozen=True):
    """A center's right to deliver. Every write that carries it is refused once another center
    has taken the delivery, or when the delivery is no longer open."""

    run: str
    sink: str
    holder: str
    number: int


class Delivery(msgspec.Struct, frozen=True):
    """The items of one run on their way into one sink of its job."""

    run: str
    #: Key of the sink in its job; see `sink_key`.
    sink: str
    job: str
    #: The sink's URL without secrets.
    place: str
    state: DeliveryState = DeliveryState.OPEN
    #: Id of the last item that the sink has stored.
    position: int = 0
    delivered: int = 0
    #: Consecutive failed attempts, the last error, and its time.
    tries: int = 0
    error: str = ""
    error_at: float = 0.0
    #: Time of the next attempt.
    again_at: float = 0.0
    changed_at: float = 0.0
    holder: str = ""
    held_until: float = 0.0
    lease: int = 0
    #: Number of refused items sent again so far; new numbers continue from here.
    resends: int = 0

    @property
    def proof(self) -> DeliveryLease:
        """The lease that the holder's writes carry."""
        return DeliveryLease(self.run, self.sink, self.holder, self.lease)


class DeliveryView(msgspec.Struct, frozen=True):
    """A delivery with the items that remain."""

    delivery: Delivery
    #: Items not delivered yet, counted up to a bound.
    pending: int
    #: Items that the sink refused.
    rejected: int


class RejectedItem(msgspec.Struct, frozen=True):
    """An item that a sink refused, and why."""

    no: int
    run: str
    sink: str
    item: int
    reason: str
    at: float
    #: Number of times it was refused.
    tries: int = 1
    #: Its number in the queue of items to send again; 0 = not in the queue.
    ticket: int = 0


def sink_key(part: SinkPart) -> str:
    """A key that is the same for the same URL and options, in every process."""
    chosen = msgspec.json.encode(part.options, order="deterministic") if part.options else b""
    return blake2b(part.url.encode() + chosen, digest_size=8).hexdigest()


def url_key(url: str) -> str:
    """The key of a sink in position files of earlier versions."""
    return blake2b(url.encode(), digest_size=8).hexdigest()
