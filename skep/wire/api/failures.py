"""Dead requests by what went wrong, and what to do with them: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.failures import DeadRequest, FailureFilter, FailureGroup, Moment
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

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


LIST_FAILURES = Route(
    "list_failures", "GET", "/api/v1/failures", Groups, asks=WhichFailures, seconds=60.0
)
GET_FAILURE_GROUP = Route(
    "get_failure_group", "GET", "/api/v1/failures/{group}", GroupView, asks=WhichDead, seconds=60.0
)
RETRY_FAILURES = Route(
    "retry_failures", "POST", "/api/v1/failures/retry", BulkAnswer, takes=BulkAct, seconds=60.0
)
CANCEL_FAILURES = Route(
    "cancel_failures", "POST", "/api/v1/failures/cancel", BulkAnswer, takes=BulkAct, seconds=60.0
)
DELETE_FAILURES = Route(
    "delete_failures", "POST", "/api/v1/failures/forget", BulkAnswer, takes=BulkAct, seconds=60.0
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
