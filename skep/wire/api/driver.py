"""Types and routes for the driver of a run, the process of a spider.

One driver at a time: opening the queue returns a token, and a checkpoint under an older token is
refused. A checkpoint is stored completely or not at all; sent twice, it counts once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.hosts.named_places import PLACE_LENGTH, PLACES_LIMIT
from skep.model.message_bounds import LIST_LIMIT, Number, Numbers
from skep.model.request import NewRequest
from skep.model.run import NewRun, Run
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

READ_BLOCKS_MAX = 64
READ_WAIT_MAX = 30.0
#: Maximum items of one checkpoint: a page can be a table of many rows.
ITEMS_LIMIT = 1_000_000


class NewDriver(NewRun):
    """The call that opens a run to drive it."""

    #: Seconds without a call after which the driver times out and its run fails; 0 = never.
    patience: Annotated[float, Meta(ge=0, le=1e9)] = 0.0


class Driving(msgspec.Struct):
    """The run, and the token of its driver."""

    run: Run
    driver: int


class Read(msgspec.Struct, forbid_unknown_fields=True):
    """The pages that the driver requests next."""

    limit: Annotated[int, Meta(ge=1, le=READ_BLOCKS_MAX)] = 8
    wait: Annotated[float, Meta(ge=0, le=READ_WAIT_MAX)] = 0.0
    taken: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=1000)] = (
        msgspec.field(default_factory=list)
    )
    bodies: bool = True
    #: The run's state as the driver knows it; if it differs, the center answers at once.
    state: str = ""


class LastWord(msgspec.Struct, forbid_unknown_fields=True):
    """How a driver ended, and why."""

    driver: Number
    state: Literal["paused", "failed", "finished"]
    reason: Annotated[str, Meta(max_length=10_000)] = ""


class Ended(msgspec.Struct):
    """The run as it is now."""

    run: Run


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
    """A block of ended requests; it is sent again until a checkpoint has taken it."""

    id: int
    pages: list[Page]


class Reading(msgspec.Struct):
    """Pages to read; `open` requests have not ended."""

    blocks: list[PageBlock]
    open: int
    state: str
    #: Open requests that wait for a known time: a back-off, a rate limit.
    resting: int = 0
    #: Why the run is in its state.
    reason: str = ""
    #: A command for this process: "" or `restart`.
    asked: str = ""


class FoundItem(msgspec.Struct, array_like=True):
    """The `n`th item of the page of a request; sent twice, it is stored once."""

    request: Number
    n: Number
    data: Annotated[dict[str, Any], Meta(max_length=LIST_LIMIT)]


class Turn(msgspec.Struct):
    """A checkpoint: the results of some blocks."""

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
    """The number of new items and requests of a checkpoint."""

    requests: int
    known: int
    items: int


START_DRIVER = Route(
    "start_driver",
    "POST",
    "/requestqueue/{identity}/driver",
    Driving,
    takes=NewDriver,
    example={"job": "books", "settings": {"retries": 2}, "patience": 60.0},
)
READ_ENDED_REQUESTS = Route(
    "read_ended_requests",
    "POST",
    "/requestqueue/{identity}/read",
    Reading,
    takes=Read,
    packed=True,
    seconds=30.0,
    example={"limit": 8, "wait": 0.0, "bodies": False},
)
SAVE_CHECKPOINT = Route(
    "save_checkpoint",
    "POST",
    "/requestqueue/{identity}/turn",
    TurnDone,
    takes=Turn,
    packed=True,
    seconds=60.0,
    example={
        "driver": 1,
        "blocks": [1],
        "items": [[1, 0, {"title": "A book"}]],
        "requests": [{"uri": "https://example.org/next"}],
    },
)
END_DRIVER = Route(
    "end_driver",
    "POST",
    "/requestqueue/{identity}/end",
    Ended,
    takes=LastWord,
    packed=True,
    example={"driver": 1, "state": "finished", "reason": "all pages were read"},
)


class DriverClient(Resource):
    """Calls the routes of this file."""

    async def start(self, run: str, body: NewDriver) -> Driving:
        """Open a run or take it over."""
        return await self._caller.call(START_DRIVER, run, body=body, starts_run=True)

    async def read(self, run: str, body: Read) -> Reading:
        """Read ended requests with their bytes."""
        return await self._caller.call(READ_ENDED_REQUESTS, run, body=body)

    async def save(self, run: str, body: Turn) -> TurnDone:
        """Tell what came of pages."""
        return await self._caller.call(SAVE_CHECKPOINT, run, body=body)

    async def end(self, run: str, body: LastWord) -> Ended:
        """Say how and why the driver ended."""
        return await self._caller.call(END_DRIVER, run, body=body)
