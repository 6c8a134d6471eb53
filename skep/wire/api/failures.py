"""Dead requests, grouped by failure, and actions on them: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.failures.dead_requests import DeadRequest, FailureFilter, FailureGroup, Moment
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

Batch = Annotated[int, Meta(ge=1, le=5000)]
After = Annotated[int, Meta(ge=0, le=2**62)]


class WhichFailures(FailureFilter, frozen=True):
    """A filter, and the maximum number of groups."""

    #: Maximum number of groups.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class Groups(msgspec.Struct):
    """The largest groups first; `requests` counts all that match, in all groups."""

    items: list[FailureGroup]
    requests: int


class WhichDead(msgspec.Struct, forbid_unknown_fields=True):
    """Which requests of a group: of one run, with ids over `after`."""

    #: Only requests of this run; empty = all runs.
    run: Annotated[str, Meta(max_length=200)] = ""
    #: Id of the last request that was read; 0 = from the start.
    after: After = 0
    #: Maximum number of requests.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


class GroupView(msgspec.Struct):
    """A group and some of its requests; continue with `after=next`."""

    group: FailureGroup
    items: list[DeadRequest]
    next: int | None = None


class BulkAct(msgspec.Struct, forbid_unknown_fields=True):
    """The requests to change. Without `"dry_run": false` nothing changes."""

    filter: FailureFilter
    dry_run: bool = True
    #: Allow an empty filter, which selects every dead request.
    all: bool = False
    #: Maximum requests that one call changes.
    limit: Batch = 1000
    after: After = 0
    #: Only requests that died before this time; default: now.
    before: Moment | None = None
    #: With `retry`: use the job revision of the run's start, not the current one.
    old_revision: bool = False


class BulkAnswer(msgspec.Struct):
    """The result, or the preview of a dry run."""

    dry_run: bool
    #: Requests that match. A call that changes requests counts those of its batch.
    matched: int
    changed: int
    #: Requests left unchanged: their run is cancelled (retry) or has not ended (forget).
    left: int
    #: Runs that are not running; their waiting requests are dispatched when they continue.
    resting: list[str]
    #: A sample of the requests that match.
    examples: list[DeadRequest]
    #: Pass it unchanged with the next call.
    before: float
    #: `after` of the next call; null after the last batch.
    next: int | None = None
    #: Runs of jobs, and the job revision that their requests use (retry).
    revisions: dict[str, int] = msgspec.field(default_factory=dict)


_EXAMPLE = {"filter": {"run": "books", "failure": "timeout"}, "dry_run": True}

LIST_FAILURES = Route(
    "list_failures",
    "GET",
    "/api/v1/failures",
    Groups,
    asks=WhichFailures,
    seconds=60.0,
    query_example={"run": "books"},
)
GET_FAILURE_GROUP = Route(
    "get_failure_group", "GET", "/api/v1/failures/{group}", GroupView, asks=WhichDead, seconds=60.0
)
RETRY_FAILURES = Route(
    "retry_failures",
    "POST",
    "/api/v1/failures/retry",
    BulkAnswer,
    takes=BulkAct,
    seconds=60.0,
    example=_EXAMPLE,
)
CANCEL_FAILURES = Route(
    "cancel_failures",
    "POST",
    "/api/v1/failures/cancel",
    BulkAnswer,
    takes=BulkAct,
    seconds=60.0,
    example=_EXAMPLE,
)
DELETE_FAILURES = Route(
    "delete_failures",
    "POST",
    "/api/v1/failures/forget",
    BulkAnswer,
    takes=BulkAct,
    seconds=60.0,
    example=_EXAMPLE,
)


class FailuresClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: WhichFailures | None = None) -> Groups:
        """Group dead requests by what went wrong."""
        return await self._caller.call(LIST_FAILURES, asks=asks)

    async def show(self, group: str, asks: WhichDead | None = None) -> GroupView:
        """Show a group of failures and its requests."""
        return await self._caller.call(GET_FAILURE_GROUP, group, asks=asks)

    async def retry(self, body: BulkAct) -> BulkAnswer:
        """Send dead requests again."""
        return await self._caller.call(RETRY_FAILURES, body=body)

    async def cancel(self, body: BulkAct) -> BulkAnswer:
        """Give dead requests up."""
        return await self._caller.call(CANCEL_FAILURES, body=body)

    async def forget(self, body: BulkAct) -> BulkAnswer:
        """Delete dead requests of ended runs."""
        return await self._caller.call(DELETE_FAILURES, body=body)
