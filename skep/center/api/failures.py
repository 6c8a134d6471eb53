"""Dead requests: group and show them; retry, cancel or delete many at once.

A bulk call first reports what it would change (`dry_run`, which is the default), then changes
it in batches: the caller repeats the call with `after` = `next` of the last answer until
`next` is null. It covers requests that were dead `before` the time of the first answer, so it
ends even when requests become dead again meanwhile.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import InvalidInput, NotFound
from skep.jobs.runs.run_start import RunStarts
from skep.model.failures.dead_requests import (
    Act,
    FailureFilter,
    needs_filter,
)
from skep.model.failures.failure_fingerprint import GROUP
from skep.wire.api.failures import (
    CANCEL_FAILURES,
    DELETE_FAILURES,
    GET_FAILURE_GROUP,
    LIST_FAILURES,
    RETRY_FAILURES,
    BulkAct,
    BulkAnswer,
    Groups,
    GroupView,
    WhichDead,
    WhichFailures,
)
from skep.wire.api.route import Route

EXAMPLES = 5


async def list_failures(call: Call) -> Groups:
    """Dead requests by failure and host."""
    failures = call.services.store.failures
    query: WhichFailures = call.query
    wanted, scope = filter_of(query), call.who.scope
    found = await failures.groups(wanted, query.limit, scope)
    return Groups(found, await failures.count(wanted, scope))


def filter_of(query: WhichFailures) -> FailureFilter:
    """The query without the fields that are not part of the filter."""
    names = FailureFilter.__struct_fields__
    return FailureFilter(**{name: getattr(query, name) for name in names})


async def show_group(call: Call) -> GroupView:
    """A group with the last attempts of its requests."""
    query: WhichDead = call.query
    failures = call.services.store.failures
    wanted = FailureFilter(run=query.run, group=call.path["group"])
    groups = await failures.groups(wanted, 1, call.who.scope)
    if not groups:
        raise NotFound(
            f"there is no failure group {call.path['group'][:100]!r}; `skep failures` lists them"
        )
    items = await failures.find(wanted, query.after, query.limit, call.who.scope)
    more = items[-1].id if len(items) == query.limit else None
    return GroupView(groups[0], items, more)


async def retry(call: Call) -> BulkAnswer:
    """Dead requests wait again; their earlier failures no longer count."""
    answer = await _act(call, "retry", call.services.jobs.starts)
    if answer.changed:
        call.services.signals.dispatcher.request()
    return answer


async def cancel(call: Call) -> BulkAnswer:
    """Dead requests become cancelled: they are not retried. Their history stays."""
    return await _act(call, "cancel")


async def forget(call: Call) -> BulkAnswer:
    """Rows of dead requests of ended runs are deleted; the ledger still counts them."""
    return await _act(call, "forget")


async def _act(call: Call, act: Act, starts: RunStarts | None = None) -> BulkAnswer:
    asked: BulkAct = call.body
    if asked.filter == FailureFilter() and not asked.all:
        raise InvalidInput('an empty filter matches all dead requests; for that, send "all": true')
    failures, scope = call.services.store.failures, call.who.scope
    now = call.services.clock.now()
    before = min(now if asked.before is None else asked.before, now)
    wanted = _until(asked.filter, before)
    if asked.dry_run:
        examples = await failures.find(wanted, asked.after, EXAMPLES, scope)
        return BulkAnswer(True, await failures.count(wanted, scope), 0, 0, [], examples, before)
    found = await failures.find(wanted, asked.after, asked.limit, scope)
    revisions: dict[str, int] = {}
    if starts is not None:  # first, so that no request is retried with its old settings
        runs = sorted({request.run for request in found})
        revisions = await _revisions(starts, runs, old=asked.old_revision)
    acted = await failures.act(act, [request.id for request in found], before)
    more = found[-1].id if len(found) == asked.limit else None
    resting, examples = list(acted.resting), found[:EXAMPLES]
    counts = (len(found), acted.done, acted.left)
    return BulkAnswer(False, *counts, resting, examples, before, more, revisions)


async def _revisions(starts: RunStarts, runs: list[str], *, old: bool) -> dict[str, int]:
    """Runs of jobs -> the revision that applies to their requests from now on."""
    found = {run: await starts.update_run(run, keep=old) for run in runs}
    return {run: revision for run, revision in found.items() if revision is not None}


def _until(wanted: FailureFilter, before: float) -> FailureFilter:
    until = before if wanted.until is None else min(before, wanted.until)
    return msgspec.structs.replace(wanted, until=until)


_GROUP: dict[str, Any] = {
    "group": {"type": "string", "minLength": 1, "maxLength": 300, "pattern": f"^{GROUP}$"}
}


def _bulk(route: Route[BulkAnswer], handler: Any, summary: str) -> Endpoint:
    return Endpoint(
        route,
        Role.OPERATOR,
        handler,
        summary,
        errors=(InvalidInput,),
        tag="failures",
        scoped=Scoping.FILTERED,
        body_rules=needs_filter(FailureFilter),
        notes="Changes nothing unless `dry_run` is false. Call it again with `after` = `next` and "
        "the same `before` until `next` is null. Repeating a call is safe.",
    )


ENDPOINTS = (
    Endpoint(
        LIST_FAILURES,
        Role.VIEWER,
        list_failures,
        "Group dead requests by failure",
        tag="failures",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        GET_FAILURE_GROUP,
        Role.VIEWER,
        show_group,
        "Show a group of failures and its requests",
        errors=(NotFound,),
        tag="failures",
        scoped=Scoping.FILTERED,
        parameters=_GROUP,
    ),
    _bulk(RETRY_FAILURES, retry, "Retry dead requests"),
    _bulk(CANCEL_FAILURES, cancel, "Cancel dead requests"),
    _bulk(DELETE_FAILURES, forget, "Delete dead requests of ended runs"),
)
