"""Dead requests: grouped, looked at, and sent again, given up or forgotten, many at once.

An act says first what it would do (`dry_run`, which is the default), then does it in batches:
the caller repeats the call with `after` of the last answer until there is no `next`. It is
about requests that were dead `before` the moment of the first answer, so it comes to an end
even when they die again meanwhile.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput, NotFound
from skep.jobs.starts import JobStarts
from skep.model.failure import (
    Act,
    DeadRequest,
    FailureFilter,
    FailureGroup,
    Moment,
    needs_filter,
)
from skep.model.fault import GROUP

EXAMPLES = 5
Batch = Annotated[int, Meta(ge=1, le=5000)]
After = Annotated[int, Meta(ge=0, le=2**62)]


class WhichFailures(FailureFilter, frozen=True):
    """A filter, and how many groups."""

    #: Number of groups at most.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class Groups(msgspec.Struct):
    """The largest groups first; `requests` counts all that fit, in all groups."""

    items: list[FailureGroup]
    requests: int


class WhichDead(msgspec.Struct, forbid_unknown_fields=True):
    """Which requests of a group: of one run, with ids over `after`."""

    #: Only requests of this run; empty = all runs.
    run: Annotated[str, Meta(max_length=200)] = ""
    #: Id of the last request that was read; 0 = from the start.
    after: After = 0
    #: Number of requests at most.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


class GroupView(msgspec.Struct):
    """A group and some of its requests; ask again with `after=next` for more."""

    group: FailureGroup
    items: list[DeadRequest]
    next: int | None = None


class BulkAct(msgspec.Struct, forbid_unknown_fields=True):
    """What to act on. Without `"dry_run": false` nothing is changed."""

    filter: FailureFilter
    dry_run: bool = True
    #: An empty filter is every dead request; it is taken only with this.
    all: bool = False
    #: Requests that one call changes at most.
    limit: Batch = 1000
    after: After = 0
    #: Only what died before this moment; absent: now.
    before: Moment | None = None
    #: With `retry`: as the job was when the run began, and not as it is now.
    old_revision: bool = False


class BulkAnswer(msgspec.Struct):
    """What was done, or would be."""

    dry_run: bool
    #: Requests that fit. A call that acts counts those of its own batch.
    matched: int
    changed: int
    #: Left as they are: their run is cancelled (retry) or goes on (forget).
    left: int
    #: Runs that rest; what waits in them is handed out when they are continued.
    resting: list[str]
    #: Some of those that fit.
    examples: list[DeadRequest]
    #: Say it again with the next call.
    before: float
    #: The next call's `after`; null when this was the last batch.
    next: int | None = None
    #: Runs of jobs, and the revision of the job with which their requests are sent (retry).
    revisions: dict[str, int] = msgspec.field(default_factory=dict)


async def list_failures(call: Call) -> Groups:
    """Dead requests by fault and host."""
    failures = call.services.store.failures
    query: WhichFailures = call.query
    wanted = filter_of(query)
    return Groups(await failures.groups(wanted, query.limit), await failures.count(wanted))


def filter_of(query: WhichFailures) -> FailureFilter:
    """Without what is not part of the filter."""
    names = FailureFilter.__struct_fields__
    return FailureFilter(**{name: getattr(query, name) for name in names})


async def show_group(call: Call) -> GroupView:
    """A group with the last attempts of its requests."""
    query: WhichDead = call.query
    failures = call.services.store.failures
    wanted = FailureFilter(run=query.run, group=call.path["group"])
    groups = await failures.groups(wanted, 1)
    if not groups:
        raise NotFound(f"there are no failures {call.path['group'][:100]!r} (any more)")
    items = await failures.find(wanted, query.after, query.limit)
    more = items[-1].id if len(items) == query.limit else None
    return GroupView(groups[0], items, more)


async def retry(call: Call) -> BulkAnswer:
    """Dead requests wait again, with their failures forgiven."""
    answer = await _act(call, "retry", call.services.jobs.starts)
    if answer.changed:
        call.services.nudge.ring()
    return answer


async def cancel(call: Call) -> BulkAnswer:
    """Dead requests become cancelled: nobody asks for them again. Their history stays."""
    return await _act(call, "cancel")


async def forget(call: Call) -> BulkAnswer:
    """Rows of dead requests of ended runs are deleted; the ledger goes on counting them."""
    return await _act(call, "forget")


async def _act(call: Call, act: Act, starts: JobStarts | None = None) -> BulkAnswer:
    asked: BulkAct = call.body
    if asked.filter == FailureFilter() and not asked.all:
        raise InvalidInput('an empty filter is every dead request; say "all": true for that')
    failures = call.services.store.failures
    now = call.services.clock.now()
    before = min(now if asked.before is None else asked.before, now)
    wanted = _until(asked.filter, before)
    if asked.dry_run:
        examples = await failures.find(wanted, asked.after, EXAMPLES)
        return BulkAnswer(True, await failures.count(wanted), 0, 0, [], examples, before)
    found = await failures.find(wanted, asked.after, asked.limit)
    revisions: dict[str, int] = {}
    if starts is not None:  # first, so that no request is sent again as it was
        runs = sorted({request.run for request in found})
        revisions = await _revisions(starts, runs, old=asked.old_revision)
    acted = await failures.act(act, [request.id for request in found], before)
    more = found[-1].id if len(found) == asked.limit else None
    resting, examples = list(acted.resting), found[:EXAMPLES]
    counts = (len(found), acted.done, acted.left)
    return BulkAnswer(False, *counts, resting, examples, before, more, revisions)


async def _revisions(starts: JobStarts, runs: list[str], *, old: bool) -> dict[str, int]:
    """Runs of jobs -> the revision that their requests follow from now on."""
    found = {run: await starts.update_run(run, keep=old) for run in runs}
    return {run: revision for run, revision in found.items() if revision is not None}


def _until(wanted: FailureFilter, before: float) -> FailureFilter:
    until = before if wanted.until is None else min(before, wanted.until)
    return msgspec.structs.replace(wanted, until=until)


_GROUP: dict[str, Any] = {
    "group": {"type": "string", "minLength": 1, "maxLength": 300, "pattern": f"^{GROUP}$"}
}


def _bulk(handler: Any, name: str, summary: str) -> Endpoint:
    return Endpoint(
        "POST",
        f"/api/v1/failures/{name}",
        Role.OPERATOR,
        handler,
        summary,
        BulkAct,
        BulkAnswer,
        errors=(InvalidInput,),
        tag="failures",
        body_rules=needs_filter(FailureFilter),
        notes="Changes nothing unless `dry_run` is false. Call it again with `after` = `next` and "
        "the same `before` until `next` is null. Doing it twice does no harm.",
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/failures",
        Role.VIEWER,
        list_failures,
        "Group dead requests by what went wrong",
        gives=Groups,
        asks=WhichFailures,
        tag="failures",
    ),
    Endpoint(
        "GET",
        "/api/v1/failures/{group}",
        Role.VIEWER,
        show_group,
        "Show a group of failures and its requests",
        gives=GroupView,
        asks=WhichDead,
        errors=(NotFound,),
        tag="failures",
        parameters=_GROUP,
    ),
    _bulk(retry, "retry", "Send dead requests again"),
    _bulk(cancel, "cancel", "Give dead requests up"),
    _bulk(forget, "forget", "Delete dead requests of ended runs"),
)
