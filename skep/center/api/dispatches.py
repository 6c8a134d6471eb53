"""Manual dispatch, and the log of all dispatches.

Run by centers. A manual round has the same limits as the loop; the log is read only.
"""

from __future__ import annotations

from skep.center.api.listing import asks_list, is_one_of, listed
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import InvalidInput, Unavailable
from skep.model.dispatch import DispatchReport
from skep.wire.api.dispatches import (
    DISPATCH_BLOCKS,
    LIST_DISPATCHES,
    Dispatches,
    DispatchOnce,
    DispatchPage,
)


async def dispatch_once(call: Call) -> DispatchReport:
    """One manual round; each job has its usual limit."""
    asked: DispatchOnce = call.body
    dispatcher = call.services.dispatcher
    return await dispatcher.once(dry_run=asked.dry_run, failed_only=asked.failed_only)


async def list_dispatches(call: Call) -> Dispatches:
    """What was dispatched, what waits because a lane is full, and what failed."""
    page: DispatchPage = call.query
    # Write this center's newest sums first, so that the answer contains them.
    await call.services.dispatcher.log.write()
    if asks_list(call):
        given = {"run": page.run, "kind": page.kind}
        terms = [is_one_of(name, text) for name, text in given.items() if text]
        items, more = await listed(call, "dispatches", *terms)
        return Dispatches(items, **more)
    store = call.services.store.dispatches
    rows = await store.recent(page.limit, page.before or None, page.run, page.kind)
    return Dispatches(rows, rows[-1].id if len(rows) == page.limit else 0)


ENDPOINTS = (
    Endpoint(
        DISPATCH_BLOCKS,
        Role.OPERATOR,
        dispatch_once,
        "Dispatch one round manually",
        errors=(Unavailable,),
        tag="dispatches",
        notes="The center dispatches continuously; this shows what one round does.",
    ),
    Endpoint(
        LIST_DISPATCHES,
        Role.VIEWER,
        list_dispatches,
        "The dispatch log",
        errors=(Unavailable, InvalidInput),
        tag="dispatches",
        scoped=Scoping.FILTERED,
        notes="One row sums up what a center dispatched of a run into a lane in some seconds.",
    ),
)
