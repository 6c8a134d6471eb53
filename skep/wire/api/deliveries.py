"""Delivery of items into sinks: types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.delivery import DeliveryState
from skep.model.message_bounds import FilterText
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

#: Highest number of a refused item.
NUMBER_MAX = 2**62
SinkKey = Annotated[str, Meta(max_length=32, description="Key of a sink; empty: every sink.")]
DeliveryVerb = Literal["retry", "give-up"]


class DeliveryLine(msgspec.Struct):
    """The items of one run and one sink of its job."""

    run: str
    job: str
    #: Key of the sink, for retry and give-up.
    sink: str
    #: The sink's URL without secrets.
    place: str
    state: DeliveryState
    delivered: int
    #: Items that the sink does not have yet, counted up to 100,000.
    pending: int
    #: Items that the sink refused.
    rejected: int
    #: Consecutive failed attempts, the last error and its time.
    tries: int
    error: str
    error_at: float
    #: Time of the next attempt.
    again_at: float
    #: Id of the last item that the sink has stored.
    position: int
    #: The center that delivers now; empty = none.
    center: str


class DeliveryLines(Listed):
    """Deliveries."""

    items: list[DeliveryLine]


class DeliveryPage(msgspec.Struct):
    """How many deliveries to list."""

    #: Maximum number of deliveries.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class WhichSink(msgspec.Struct):
    """Which sink of the run."""

    sink: SinkKey = ""


class RejectedPage(msgspec.Struct):
    """Which refused items to list: `limit` of them, with numbers over `after`."""

    #: Number of the last refused item that was read; 0 = from the start.
    after: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0
    #: Maximum number of refused items.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class RejectedLine(msgspec.Struct):
    """An item that a sink refused."""

    #: Its number, for sending it again.
    number: int
    sink: str
    #: Id of the item in the run.
    item: int
    reason: str
    at: float
    tries: int
    #: It waits to be sent again.
    resending: bool


class RejectedLines(msgspec.Struct):
    """Sorted by number; continue with `after=next`, null at the end."""

    items: list[RejectedLine]
    next: int | None = None


class Resend(msgspec.Struct, forbid_unknown_fields=True):
    """Which refused items to send again; `{}` means all of them."""

    sink: SinkKey = ""
    numbers: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=NUMBER_MAX)], ...], Meta(max_length=1000)
    ] = ()


class Resent(msgspec.Struct):
    """How many refused items are sent again."""

    items: int


LIST_DELIVERIES = Route(
    "list_deliveries", "GET", "/api/v1/deliveries", DeliveryLines, asks=DeliveryPage
)
LIST_RUN_DELIVERIES = Route(
    "list_run_deliveries", "GET", "/api/v1/runs/{run}/deliveries", DeliveryLines
)
CHANGE_RUN_DELIVERIES = Route(
    "change_run_deliveries",
    "POST",
    "/api/v1/runs/{run}/deliveries/{verb}",
    DeliveryLines,
    asks=WhichSink,
)
LIST_REJECTED_ITEMS = Route(
    "list_rejected_items", "GET", "/api/v1/runs/{run}/rejected", RejectedLines, asks=RejectedPage
)
RETRY_REJECTED_ITEMS = Route(
    "retry_rejected_items",
    "POST",
    "/api/v1/runs/{run}/rejected/retry",
    Resent,
    takes=Resend,
    example={"numbers": [1, 2]},
)


class DeliveriesClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: DeliveryPage | None = None) -> DeliveryLines:
        """List deliveries that are not complete."""
        return await self._caller.call(LIST_DELIVERIES, asks=asks)

    async def of_run(self, run: str) -> DeliveryLines:
        """Show how far the sinks of a run are."""
        return await self._caller.call(LIST_RUN_DELIVERIES, run)

    async def change(
        self, run: str, verb: DeliveryVerb, asks: WhichSink | None = None
    ) -> DeliveryLines:
        """Retry or give up the delivery of a run's items."""
        return await self._caller.call(CHANGE_RUN_DELIVERIES, run, verb, asks=asks)

    async def rejected(self, run: str, asks: RejectedPage | None = None) -> RejectedLines:
        """List items that sinks refused."""
        return await self._caller.call(LIST_REJECTED_ITEMS, run, asks=asks)

    async def resend(self, run: str, body: Resend) -> Resent:
        """Send refused items again."""
        return await self._caller.call(RETRY_REJECTED_ITEMS, run, body=body)
