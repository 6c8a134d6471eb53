"""Requests by filter: list them, and cancel those that no agent works on.

Run by centers, in batches. Without `"dry_run": false` nothing is changed. Requests that are
leased to an agent are never changed.
"""

from __future__ import annotations

from contextlib import suppress

from skep.center.api.failures import EXAMPLES
from skep.center.api.listing import asks_list, between, contains, is_one_of, listed
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.request_line import line_of
from skep.errors import InvalidInput, Unavailable
from skep.model.failures.dead_requests import RequestFilter, needs_filter
from skep.model.filter.checked import CheckedTerm
from skep.wire.api.requests import (
    CANCEL_REQUESTS,
    LIST_REQUESTS,
    CancelAnswer,
    CancelRequests,
    RequestPage,
    WhichRequests,
)


async def list_requests(call: Call) -> RequestPage:
    """Requests of any state."""
    query: WhichRequests = call.query
    wanted = RequestFilter(**{n: getattr(query, n) for n in RequestFilter.__struct_fields__})
    if asks_list(call):
        items, how = await listed(call, "requests", *_terms(wanted))
        return RequestPage([line_of(view) for view in items], **how)
    found = await call.services.store.failures.requests(wanted, query.after, query.limit)
    more = found[-1].id if len(found) == query.limit else None
    return RequestPage([line_of(view) for view in found], more)


def _terms(wanted: RequestFilter) -> list[CheckedTerm]:
    """The older fields of the query, as terms of the filter."""
    names = ("run", "job", "host", "state")
    found = [is_one_of(name, text) for name in names if (text := getattr(wanted, name))]
    if wanted.text:
        found.append(contains("uri", wanted.text))
    if wanted.since is not None or wanted.until is not None:
        found.append(between("created", wanted.since, wanted.until))
    return found


async def cancel_requests(call: Call) -> CancelAnswer:
    """Cancel open requests that are not leased to an agent."""
    asked: CancelRequests = call.body
    if asked.filter == RequestFilter() and not asked.all:
        raise InvalidInput('an empty filter matches every request; to do that, send "all": true')
    failures, scope = call.services.store.failures, call.who.scope
    size = EXAMPLES if asked.dry_run else asked.limit
    found = await failures.requests(asked.filter, asked.after, size, scope)
    examples = [line_of(view) for view in found[:EXAMPLES]]
    if asked.dry_run:
        matched = await failures.count_requests(asked.filter, scope)
        return CancelAnswer(True, matched, 0, 0, examples)
    acted = await failures.cancel([view.id for view in found], call.services.clock.now())
    with suppress(Unavailable):  # otherwise the periodic self-check does it later
        await call.services.dispatcher.drop_ended({view.block for view in found if view.block})
    more = found[-1].id if len(found) == asked.limit else None
    return CancelAnswer(False, len(found), acted.done, len(found) - acted.done, examples, more)


ENDPOINTS = (
    Endpoint(
        LIST_REQUESTS,
        Role.VIEWER,
        list_requests,
        "List requests",
        errors=(InvalidInput,),
        tag="requests",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        CANCEL_REQUESTS,
        Role.OPERATOR,
        cancel_requests,
        "Cancel open requests by filter",
        errors=(InvalidInput,),
        tag="requests",
        scoped=Scoping.FILTERED,
        body_rules=needs_filter(RequestFilter),
        notes="Changes nothing unless `dry_run` is false. Leased requests are not changed.",
    ),
)
