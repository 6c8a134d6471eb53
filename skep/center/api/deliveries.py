"""Delivery of items to sinks: pending deliveries, refused items; retry and give up.

Run by centers. A change is written to the store, where the delivering center reads it.
"""

from __future__ import annotations

from skep.center.api.listing import asks_list, listed
from skep.center.api.path_names import RUN_NAMES, run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import Conflict, InvalidInput, NotFound, UnknownRun
from skep.model.delivery import DeliveryState, DeliveryView
from skep.wire.api.deliveries import (
    CHANGE_RUN_DELIVERIES,
    LIST_DELIVERIES,
    LIST_REJECTED_ITEMS,
    LIST_RUN_DELIVERIES,
    RETRY_REJECTED_ITEMS,
    DeliveryLine,
    DeliveryLines,
    DeliveryPage,
    RejectedLine,
    RejectedLines,
    RejectedPage,
    Resend,
    Resent,
)

VERBS = {"retry": DeliveryState.OPEN, "give-up": DeliveryState.GIVEN_UP}


async def list_deliveries(call: Call) -> DeliveryLines:
    """Incomplete deliveries that failed or whose run has ended, of all runs."""
    query: DeliveryPage = call.query
    if asks_list(call):
        items, more = await listed(call, "deliveries")
        return DeliveryLines([line_of(view) for view in items], **more)
    found = await call.services.store.deliveries.unfinished(query.limit)
    return DeliveryLines([line_of(view) for view in found])


async def run_deliveries(call: Call) -> DeliveryLines:
    """Every sink of a run and its progress."""
    return await _of(call, await _known(call))


async def change_delivery(call: Call) -> DeliveryLines:
    """Retry at once, or give up; a delivery that was given up can be retried."""
    state = VERBS.get(call.path["verb"])
    if state is None:
        raise NotFound(
            f"{call.path['verb'][:50]!r} is not an action; use one of {', '.join(VERBS)}"
        )
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
    """Send refused items again, for example after a change of the sink's table."""
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
        LIST_DELIVERIES,
        Role.VIEWER,
        list_deliveries,
        "List deliveries that are not complete",
        errors=(InvalidInput,),
        tag="deliveries",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        LIST_RUN_DELIVERIES,
        Role.VIEWER,
        run_deliveries,
        "Show the progress of the sinks of a run",
        errors=_ERRORS,
        tag="deliveries",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
    Endpoint(
        CHANGE_RUN_DELIVERIES,
        Role.OPERATOR,
        change_delivery,
        "Retry or give up the delivery of a run's items",
        errors=(*_ERRORS, Conflict),
        tag="deliveries",
        scoped=Scoping.RUN,
        parameters={**RUN_NAMES, "verb": {"enum": list(VERBS)}},
    ),
    Endpoint(
        LIST_REJECTED_ITEMS,
        Role.VIEWER,
        list_rejected,
        "List items that sinks refused",
        errors=_ERRORS,
        tag="deliveries",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
    Endpoint(
        RETRY_REJECTED_ITEMS,
        Role.OPERATOR,
        resend,
        "Send refused items again",
        errors=_ERRORS,
        tag="deliveries",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
)
