"""The dispatch log, and a dispatch round by hand: types and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.dispatch import DispatchReport, DispatchRow
from skep.model.message_bounds import FilterText
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route


class DispatchOnce(msgspec.Struct, forbid_unknown_fields=True):
    """One round of the dispatcher."""

    #: Report what it would do, and do nothing.
    dry_run: bool = False
    #: Only requests that have failed before.
    failed_only: bool = False


class Dispatches(Listed):
    """Newest first; continue with `before=next` until `next` is 0."""

    items: list[DispatchRow]
    next: int = 0


class DispatchPage(msgspec.Struct):
    """Which part of the log."""

    #: Maximum number of entries, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Only entries with ids below this one; 0 = from the newest.
    before: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: Only entries of this run; empty = all runs.
    run: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,64}$(?!\n)")] = ""
    #: Only entries of this kind; empty = all kinds.
    kind: Literal["", "alert", "success", "failed"] = ""
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


DISPATCH_BLOCKS = Route(
    "dispatch_blocks",
    "POST",
    "/api/v1/dispatches",
    DispatchReport,
    takes=DispatchOnce,
    example={"dry_run": True},
)
LIST_DISPATCHES = Route(
    "list_dispatches", "GET", "/api/v1/dispatches", Dispatches, asks=DispatchPage
)


class DispatchesClient(Resource):
    """Calls the routes of this file."""

    async def dispatch(self, body: DispatchOnce) -> DispatchReport:
        """Dispatch one round by hand."""
        return await self._caller.call(DISPATCH_BLOCKS, body=body)

    async def list(self, asks: DispatchPage | None = None) -> Dispatches:
        """The dispatch log."""
        return await self._caller.call(LIST_DISPATCHES, asks=asks)
