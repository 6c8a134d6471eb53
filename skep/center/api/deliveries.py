"""Delivery of items into sinks: what is pending, what a sink refused; retry and give up.

Run by centers. A change goes to the store; the center that delivers hears of it there.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.api.names import RUN_NAMES, run_name
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import Conflict, InvalidInput, NotFound, UnknownRun
from skep.model.delivery import DeliveryState, DeliveryView

VERBS = {"retry": DeliveryState.OPEN, "give-up": DeliveryState.GIVEN_UP}
#: Highest number of a refused item.
NUMBER_MAX = 2**62

SinkKey = Annotated[str, Meta(max_length=32, description="Key of a sink; empty: every sink.")]


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
    #: Failed tries in a row, the last error and when it happened.
    tries: int
    error: str
    error_at: float
    #: When it is tried again.
    again_at: float
    #: Id of the last item that the sink has.
    position: int
    #: The center that delivers now; empty when none does.
    center: str


class DeliveryLines(msgspec.Struct):
    """Deliveries."""

    items: list[DeliveryLine]


class HowMany(msgspec.Struct):
    """How many deliveries to list."""

    #: Number of deliveries at most.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class WhichSink(msgspec.Struct):
    """Which sink of the run."""

    sink: SinkKey = ""


class RejectedPage(msgspec.Struct):
    """Which refused items to list: `limit` of them, with numbers over `after`."""

    #: Number of the last refused item that was read; 0 = from the start.
    after: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0
    #: Number of refused items at most.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class RejectedLine(msgspec.Struct):
    """An item that a sink refused."""

    #: For sending it again.
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
    """By number; ask again with `after=next` for more, null at the end."""

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


async def list_deliveries(call: Call) -> DeliveryLines:
    """Deliveries that failed or whose run has ended, over all runs."""
    query: HowMany = call.query
    found = await call.services.store.deliveries.unfinished(query.limit)
    return DeliveryLines([line_of(view) for view in found])


async def run_deliveries(call: Call) -> DeliveryLines:
    """Every sink of a run, and how far it is."""
    return await _of(call, await _known(call))


async def change_delivery(call: Call) -> DeliveryLines:
    """Retry at once, or give up; a delivery that was given up can be retried."""
    state = VERBS.get(call.path["verb"])
    if state is None:
        raise NotFound(f"{call.path['verb'][:50]!r} is none of {', '.join(VERBS)}")
    run, query = await _known(call), call.query
    store, now = call.services.store, call.services.clock.now()
    changed = await store.deliveries.decide(run, query.sink, state, now)
    if not changed:
        raise Conflict(_nothing(run, query.sink))
    call.services.jobs.deliverer.look(run)
    return await _of(call, run)


async def list_rejected(call: Call) -> RejectedLines:
    """Items that sinks of the run refused, and why."""
    query: RejectedPage = call.query
    run = await _known(call)
    found = await call.services.store.deliveries.rejected(run, query.after, query.limit)
    lines = [
        RejectedLine(row.no, row.sink, row.item, row.reason, row.at, row.tries, row.ticket > 0)
        for row in found
    ]
    return RejectedLines(lines, found[-1].no if len(found) == query.limit else None)


async def resend(call: Call) -> Resent:
    """Send refused items again, such as after the sink's table was changed."""
    asked: Resend = call.body
    run = await _known(call)
    now = call.services.clock.now()
    deliveries = call.services.store.deliveries
    count = await deliveries.resend(run, asked.sink, asked.numbers, now)
    call.services.jobs.deliverer.look(run)
    return Resent(count)


def line_of(view: DeliveryView) -> DeliveryLine:
    """A delivery as the API shows it."""
    one = view.delivery
    return DeliveryLine(
        one.run,
        one.job,
        one.sink,
        one.place,
        one.state,
        one.delivered,
        view.pending,
        view.rejected,
        one.tries,
        one.error,
        one.error_at,
        one.again_at,
        one.position,
        one.holder,
    )


async def _known(call: Call) -> str:
    """Raises UnknownRun."""
    return (await call.services.store.runs.get(run_name(call.path["run"]))).id


async def _of(call: Call, run: str) -> DeliveryLines:
    found = await call.services.store.deliveries.of(run)
    return DeliveryLines([line_of(view) for view in found])


def _nothing(run: str, sink: str) -> str:
    which = f"sink {sink!r}" if sink else "sink"
    return f"run {run} has no open delivery to a {which}; see `skep data deliveries {run}`"


_ERRORS = (InvalidInput, UnknownRun)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/deliveries",
        Role.VIEWER,
        list_deliveries,
        "List deliveries that are not complete",
        gives=DeliveryLines,
        asks=HowMany,
        tag="deliveries",
    ),
    Endpoint(
        "GET",
        "/api/v1/runs/{run}/deliveries",
        Role.VIEWER,
        run_deliveries,
        "Show how far the sinks of a run are",
        gives=DeliveryLines,
        errors=_ERRORS,
        tag="deliveries",
        parameters=RUN_NAMES,
    ),
    Endpoint(
        "POST",
        "/api/v1/runs/{run}/deliveries/{verb}",
        Role.OPERATOR,
        change_delivery,
        "Retry or give up the delivery of a run's items",
        gives=DeliveryLines,
        asks=WhichSink,
        errors=(*_ERRORS, Conflict),
        tag="deliveries",
        parameters={**RUN_NAMES, "verb": {"enum": list(VERBS)}},
    ),
    Endpoint(
        "GET",
        "/api/v1/runs/{run}/rejected",
        Role.VIEWER,
        list_rejected,
        "List items that sinks refused",
        gives=RejectedLines,
        asks=RejectedPage,
        errors=_ERRORS,
        tag="deliveries",
        parameters=RUN_NAMES,
    ),
    Endpoint(
        "POST",
        "/api/v1/runs/{run}/rejected/retry",
        Role.OPERATOR,
        resend,
        "Send refused items again",
        Resend,
        Resent,
        errors=_ERRORS,
        tag="deliveries",
        parameters=RUN_NAMES,
    ),
)
