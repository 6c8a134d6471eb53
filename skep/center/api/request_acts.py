"""Requests by filter: listed, and cancelled while nobody works on them.

Run by centers, in batches. Without `"dry_run": false` nothing is changed, and what is in an
agent's hands is left alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.api.failures import EXAMPLES, After, Batch
from skep.center.api.requests import RequestLine, line_of
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput, Unavailable
from skep.model.failure import RequestFilter, needs_filter


class WhichRequests(RequestFilter, frozen=True):
    """A filter, and a page of what fits."""

    #: Id of the last request that was read; 0 = from the start.
    after: After = 0
    #: Number of requests at most.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class RequestPage(msgspec.Struct):
    """In the order of their ids; ask again with `after=next` for more."""

    items: list[RequestLine]
    next: int | None = None


class CancelRequests(msgspec.Struct, forbid_unknown_fields=True):
    """What to cancel. Without `"dry_run": false` nothing is changed."""

    filter: RequestFilter
    dry_run: bool = True
    #: An empty filter is every open request; it is taken only with this.
    all: bool = False
    limit: Batch = 1000
    after: After = 0


class CancelAnswer(msgspec.Struct):
    """What was done, or would be."""

    dry_run: bool
    matched: int
    changed: int
    #: In an agent's hands, or ended.
    left: int
    examples: list[RequestLine]
    next: int | None = None


async def list_requests(call: Call) -> RequestPage:
    """Requests of any state."""
    query: WhichRequests = call.query
    wanted = RequestFilter(**{n: getattr(query, n) for n in RequestFilter.__struct_fields__})
    found = await call.services.store.failures.requests(wanted, query.after, query.limit)
    more = found[-1].id if len(found) == query.limit else None
    return RequestPage([line_of(view) for view in found], more)


async def cancel_requests(call: Call) -> CancelAnswer:
    """Open requests that are in nobody's hands become cancelled."""
    asked: CancelRequests = call.body
    if asked.filter == RequestFilter() and not asked.all:
        raise InvalidInput('an empty filter is every request; say "all": true for that')
    failures = call.services.store.failures
    size = EXAMPLES if asked.dry_run else asked.limit
    found = await failures.requests(asked.filter, asked.after, size)
    examples = [line_of(view) for view in found[:EXAMPLES]]
    if asked.dry_run:
        return CancelAnswer(True, await failures.count_requests(asked.filter), 0, 0, examples)
    acted = await failures.cancel([view.id for view in found], call.services.clock.now())
    with suppress(Unavailable):  # the periodic comparison does it a little later
        await call.services.dispatcher.drop_ended({view.block for view in found if view.block})
    more = found[-1].id if len(found) == asked.limit else None
    return CancelAnswer(False, len(found), acted.done, len(found) - acted.done, examples, more)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/requests",
        Role.VIEWER,
        list_requests,
        "List requests",
        gives=RequestPage,
        asks=WhichRequests,
        tag="requests",
    ),
    Endpoint(
        "POST",
        "/api/v1/requests/cancel",
        Role.OPERATOR,
        cancel_requests,
        "Cancel open requests by filter",
        CancelRequests,
        CancelAnswer,
        errors=(InvalidInput,),
        tag="requests",
        body_rules=needs_filter(RequestFilter),
        notes="Changes nothing unless `dry_run` is false. Requests in an agent's hands are left.",
    ),
)
