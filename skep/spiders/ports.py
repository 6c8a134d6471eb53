"""What a spider's loop asks of the center: its run's queue.

One driver at a time: opening the queue gives a token, and a turn under an older token is
refused, so a spider that was believed dead can do no harm. A turn is all or nothing: the
blocks that were read, the items found in them and the requests that they led to become
durable together. Told twice, it counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from skep.model.bounds import LIST_LIMIT, Number, Numbers
from skep.model.ledger import Ledger
from skep.model.places import PLACE_LENGTH, PLACES_LIMIT
from skep.model.request import NewRequest
from skep.model.run import Run, RunSettings

#: Most items of one turn: a page may be a table of many rows.
ITEMS_LIMIT = 1_000_000


class Page(msgspec.Struct):
    """One ended request of the run, with its archived bytes (WARC frames) when it has any."""

    id: int
    uri: str
    state: str
    status: int = 0
    failure: str = ""
    detail: str = ""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    final_uri: str = ""
    frames: bytes = b""
    #: Microseconds that the download took; 0 = not known.
    elapsed_us: int = 0


class PageBlock(msgspec.Struct):
    """A block of ended requests; it is told again until a turn has taken it."""

    id: int
    pages: list[Page]


class Reading(msgspec.Struct):
    """What there was to read; `open` requests still have a way to go."""

    blocks: list[PageBlock]
    open: int
    state: str
    #: Those of the open ones that wait for a time that is known: a back-off, a host's pace.
    resting: int = 0
    #: Why the run is in its state.
    reason: str = ""
    #: What somebody asks of this process: "" or `restart`.
    asked: str = ""


class FoundItem(msgspec.Struct, array_like=True):
    """The `n`th item of the page of a request; told twice, it is kept once."""

    request: Number
    n: Number
    data: Annotated[dict[str, Any], Meta(max_length=LIST_LIMIT)]


class Turn(msgspec.Struct):
    """Everything that came of some blocks."""

    driver: Number
    blocks: Numbers = msgspec.field(default_factory=list)
    items: Annotated[list[FoundItem], Meta(max_length=ITEMS_LIMIT)] = msgspec.field(
        default_factory=list
    )
    requests: Annotated[list[NewRequest], Meta(max_length=LIST_LIMIT)] = msgspec.field(
        default_factory=list
    )
    #: Loopback and private places (`host:port`) that start URLs name.
    named: Annotated[
        list[Annotated[str, Meta(max_length=PLACE_LENGTH)]], Meta(max_length=PLACES_LIMIT)
    ] = msgspec.field(default_factory=list)


class TurnDone(msgspec.Struct):
    """What was new in it."""

    requests: int
    known: int
    items: int


class RunQueue(Protocol):
    """The queue of one run. Raises Conflict (StaleToken) when another driver took over, and
    CenterUnreachable after its own patience with reconnecting is over."""

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        """Make the run, or take it over; ends the turn of any other driver. A driver that
        tells no turn for `patience` seconds is given up, and its run fails; 0 = never."""

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        """Finished blocks, except `taken` ones that are in hand already. Returns at once when
        the run's state is not that of the reading before, or something is asked."""

    async def turn(self, turn: Turn) -> TurnDone:
        """Make it durable; may be told again after a broken line. An empty one is a sign of
        life."""

    async def end(self, verb: str, reason: str) -> None:
        """The driver's last word: pause, fail or finish, and why. Raises StaleToken."""

    async def ledger(self) -> Ledger:
        """Where the run's requests are."""

    async def move(self, verb: str) -> None:
        """What a person does: pause, continue, finish or cancel."""
