"""Bulk operations: one act on everything that a filter matches. Types and routes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.model.message_bounds import FilterText
from skep.model.operations import Operation, OperationResult, OperationState
from skep.wire.api.caller import Download, Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

Name = Annotated[str, Meta(max_length=32)]


class StartOperation(msgspec.Struct, forbid_unknown_fields=True):
    """An act on all objects that match. Without `"dry_run": false` nothing changes."""

    #: requests, failures, runs, jobs or agents.
    resource: Name
    #: Name of the act; `GET /api/v1/acts` lists them.
    act: Name
    #: A filter, as in lists.
    filter: FilterText = ""
    #: Arguments of the act.
    arguments: Annotated[dict[str, Any], Meta(max_length=20)] = {}
    dry_run: bool = True
    #: `confirm` of the dry run; needed by acts that cannot be undone.
    confirm: Annotated[str, Meta(max_length=100)] = ""
    #: Allow an empty filter, which matches every object.
    all: bool = False
    #: Maximum number of objects per second; 0 = the limit of the act.
    rate: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    #: A second call with this key starts nothing and returns the first operation.
    key: Annotated[str, Meta(max_length=64)] = ""


class TargetLine(msgspec.Struct):
    """An object that matches."""

    #: Its id or name.
    name: str
    #: URI of a request, job of a run, author of a job.
    text: str


class OperationPlan(msgspec.Struct):
    """What an operation would change."""

    #: Objects that match, counted up to 10,000.
    matched: int
    #: False: this many or more.
    exact: bool
    examples: list[TargetLine]
    #: Whether the act cannot be undone; then `confirm` is needed.
    destroys: bool
    #: Send it unchanged to start the operation.
    confirm: str


class OperationView(msgspec.Struct):
    """An operation and its results so far."""

    id: int
    #: The kind of objects.
    resource: str
    #: Name of the act.
    act: str
    #: As it was given.
    filter: str
    #: Arguments of the act.
    arguments: dict[str, Any]
    #: The user who started it.
    creator: str
    state: OperationState
    #: Objects in its set; still growing while it is collecting.
    matched: int
    #: Objects that are processed.
    settled: int
    #: By outcome and reason.
    results: list[OperationResult]
    created_at: float
    #: When a center began to work on it; 0 = not yet.
    started_at: float
    ended_at: float
    #: Maximum number of objects per second; 0 = the limit of the act.
    rate: int = 0
    #: Why it failed.
    error: str = ""
    #: The center that works on it; "" = none.
    holder: str = ""
    #: Lines and bytes of the file that it has made; null = the act makes none, or it was deleted.
    file: FileSize | None = None
    #: What else there is to know, such as the job revision that a run follows now.
    notes: list[str] = []


class FileSize(msgspec.Struct):
    """The file of an export, before compression."""

    #: Number of lines.
    lines: int
    #: Number of bytes.
    bytes: int


def view_of(operation: Operation, *, with_causes: bool = True) -> OperationView:
    """As callers see it. The cause of a single failure can name other objects: without causes, the
    examples are names only."""
    asked, results = operation.asked, operation.results
    if not with_causes:
        results = [_without_causes(one) for one in results]
    return OperationView(
        operation.id,
        asked.resource,
        asked.act,
        asked.filter,
        asked.arguments,
        asked.creator,
        operation.state,
        operation.matched,
        operation.settled,
        results,
        operation.created_at,
        operation.started_at,
        operation.ended_at,
        asked.rate,
        operation.error,
        operation.holder,
        notes=operation.notes,
    )


def _without_causes(result: OperationResult) -> OperationResult:
    names = [one.partition(": ")[0] for one in result.examples]
    return msgspec.structs.replace(result, examples=names)


class OperationAnswer(msgspec.Struct):
    """The plan of a dry run, or the started operation."""

    dry_run: bool
    #: The result of a dry run.
    plan: OperationPlan | None = None
    #: The operation that was started.
    operation: OperationView | None = None


class WhichOperations(msgspec.Struct, forbid_unknown_fields=True):
    """A page of operations, newest first."""

    #: Maximum number of operations.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: Only operations with lower numbers; 0 = from the newest.
    before: Annotated[int, Meta(ge=0, le=2**62)] = 0
    #: Only operations that have not ended.
    open: bool = False
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class OperationPage(Listed):
    """Newest first; continue with `before=next`, or with `page` when there is a filter."""

    items: list[OperationView]
    next: int | None = None


class ActLine(msgspec.Struct):
    """An act that operations can use."""

    #: The kind of objects that it is for.
    resource: str
    #: Name of the act.
    name: str
    #: What it does.
    help: str
    #: Whether it cannot be undone.
    destroys: bool
    #: Whether only admins may use it.
    admin: bool
    #: Maximum number of objects per second.
    rate: int
    #: Names of its arguments.
    arguments: list[str]


class Acts(msgspec.Struct):
    """By resource and name."""

    items: list[ActLine]


LIST_ACTS = Route("list_acts", "GET", "/api/v1/acts", Acts)
LIST_OPERATIONS = Route(
    "list_operations", "GET", "/api/v1/operations", OperationPage, asks=WhichOperations
)
START_OPERATION = Route(
    "start_operation",
    "POST",
    "/api/v1/operations",
    OperationAnswer,
    takes=StartOperation,
    seconds=60.0,
    example={"resource": "failures", "act": "retry", "filter": "run:books"},
)
GET_OPERATION = Route("get_operation", "GET", "/api/v1/operations/{operation}", OperationView)
CANCEL_OPERATION = Route(
    "cancel_operation", "POST", "/api/v1/operations/{operation}/cancel", OperationView
)
GET_OPERATION_FILE: Route[bytes] = Route(
    "get_operation_file",
    "GET",
    "/api/v1/operations/{operation}/file",
    media="application/octet-stream",
    seconds=600.0,
    answer_example='{"id": 1, "run": "books"}\n',
)


class OperationsClient(Resource):
    """Calls the routes of this file."""

    async def acts(self) -> Acts:
        """List acts."""
        return await self._caller.call(LIST_ACTS)

    async def list(self, asks: WhichOperations | None = None) -> OperationPage:
        """List operations, newest first."""
        return await self._caller.call(LIST_OPERATIONS, asks=asks)

    async def start(self, body: StartOperation) -> OperationAnswer:
        """Make a dry run, or start an operation."""
        return await self._caller.call(START_OPERATION, body=body)

    async def show(self, operation: int) -> OperationView:
        """Show an operation."""
        return await self._caller.call(GET_OPERATION, operation)

    async def cancel(self, operation: int) -> OperationView:
        """End an open operation; what is done stays done."""
        return await self._caller.call(CANCEL_OPERATION, operation)

    def file(self, operation: int) -> AbstractAsyncContextManager[Download]:
        """The file of an export that has ended, piece by piece."""
        return self._caller.stream(GET_OPERATION_FILE, operation)
