"""Dispatch by hand, and the log of all dispatches.

Run by centers. A round by hand obeys the same limits as the loop; the log is read only.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import Unavailable
from skep.model.dispatch import DispatchReport, DispatchRow


class DispatchOnce(msgspec.Struct, forbid_unknown_fields=True):
    """One round of the dispatcher."""

    #: Say what it would do, and do nothing.
    dry_run: bool = False
    #: Only requests that have failed before.
    failed_only: bool = False


class Dispatches(msgspec.Struct):
    """Newest first; ask again with `before=next` until `next` is 0."""

    items: list[DispatchRow]
    next: int = 0


class Page(msgspec.Struct):
    """Which part of the log."""

    #: Number of entries at most, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Only entries with ids below this one; 0 = from the newest.
    before: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: Only entries of this run; empty = all runs.
    run: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,64}$(?!\n)")] = ""
    #: Only entries of this kind; empty = all kinds.
    kind: Literal["", "alert", "success", "failed"] = ""


async def dispatch_once(call: Call) -> DispatchReport:
    """One round by hand: at most its own number of each job."""
    asked: DispatchOnce = call.body
    dispatcher = call.services.dispatcher
    return await dispatcher.once(dry_run=asked.dry_run, failed_only=asked.failed_only)


async def list_dispatches(call: Call) -> Dispatches:
    """What was dispatched, what waits for a full lane, what went wrong."""
    page: Page = call.query
    # This center's newest sums are written first, so that they are in the answer.
    await call.services.dispatcher.log.write()
    store = call.services.store.dispatches
    rows = await store.recent(page.limit, page.before or None, page.run, page.kind)
    return Dispatches(rows, rows[-1].id if len(rows) == page.limit else 0)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/dispatches",
        Role.OPERATOR,
        dispatch_once,
        "Dispatch one round by hand",
        DispatchOnce,
        DispatchReport,
        errors=(Unavailable,),
        tag="dispatches",
        notes="The center dispatches by itself all the time; this shows what one round does.",
    ),
    Endpoint(
        "GET",
        "/api/v1/dispatches",
        Role.VIEWER,
        list_dispatches,
        "The dispatch log",
        gives=Dispatches,
        asks=Page,
        errors=(Unavailable,),
        tag="dispatches",
        notes="One row sums up what a center dispatched of a run into a lane in some seconds.",
    ),
)
