"""Delivery of a run's items into one sink: how far it is, and what the sink refused.

Pure data. A delivery has a lease of its own: the run may have ended long ago, and any center
may go on with it.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from skep.model.jobs.job import SinkPart


class DeliveryState(StrEnum):
    """An open delivery is retried until it succeeds or a person gives it up."""

    OPEN = "open"
    DONE = "done"
    GIVEN_UP = "given_up"


class DeliveryLease(msgspec.Struct, frozen=True):
    """A center's right to deliver. Every write that carries it is refused once another center
    has taken the delivery, or the delivery is not open any more."""

    run: str
    sink: str
    holder: str
    number: int


class Delivery(msgspec.Struct, frozen=True):
    """A run and one of its job's sinks."""

    run: str
    #: Key of the sink in its job; see `sink_key`.
    sink: str
    job: str
    #: The sink's URL without secrets.
    place: str
    state: DeliveryState = DeliveryState.OPEN
    #: Id of the last item that the sink has.
    position: int = 0
    delivered: int = 0
    #: Failed tries in a row, the last error, and when that was.
    tries: int = 0
    error: str = ""
    error_at: float = 0.0
    #: Not before this time.
    again_at: float = 0.0
    changed_at: float = 0.0
    holder: str = ""
    held_until: float = 0.0
    lease: int = 0
    #: How many refused items were sent again so far: their numbers go on from here.
    resends: int = 0

    @property
    def proof(self) -> DeliveryLease:
        """What the holder's writes carry."""
        return DeliveryLease(self.run, self.sink, self.holder, self.lease)


class DeliveryView(msgspec.Struct, frozen=True):
    """A delivery with what is left of it."""

    delivery: Delivery
    #: Items that are not delivered yet, counted up to a bound.
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
    #: How often it was refused.
    tries: int = 1
    #: Its number among those that are sent again; 0 = it is not.
    ticket: int = 0


def sink_key(part: SinkPart) -> str:
    """The same for the same URL and options, in every process."""
    chosen = msgspec.json.encode(part.options, order="deterministic") if part.options else b""
    return blake2b(part.url.encode() + chosen, digest_size=8).hexdigest()


def url_key(url: str) -> str:
    """How position files of earlier versions name a sink."""
    return blake2b(url.encode(), digest_size=8).hexdigest()
