"""Single requests and blocks, requests by filter, archived bytes: types and routes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.attempt import Attempt
from skep.model.block import BlockChange, BlockView
from skep.model.failures.dead_requests import RequestFilter
from skep.model.message_bounds import FilterText
from skep.wire.api.caller import Download, Resource
from skep.wire.api.failures import After, Batch
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

#: The states of `model/states.py`, as words.
StateWord = Literal[
    "waiting", "queued", "leased", "delayed", "done", "dead", "cancelled", "expired"
]


class RequestLine(msgspec.Struct):
    """A request in a list."""

    id: int
    run: str
    uri: str
    priority: int
    state: StateWord
    failures: int
    #: The block that it is in, or ended in.
    block: int | None
    created_at: float
    #: A delayed request waits until this time.
    not_before: float


class RequestDetail(msgspec.Struct):
    """A request and every attempt at it, oldest first."""

    request: RequestLine
    attempts: list[Attempt]


class HeaderLine(msgspec.Struct):
    """One header."""

    #: As the server sent it.
    name: str
    #: Decoded as Latin-1.
    value: str


class ArchivedHead(msgspec.Struct):
    """Status line and headers of the newest archived answer to a request."""

    #: Such as `HTTP/1.1 200 OK`.
    status_line: str
    #: In the order of the answer.
    headers: list[HeaderLine]


class BlockDetail(msgspec.Struct):
    """A block and every change of its state, oldest first."""

    block: BlockView
    history: list[BlockChange]


class WhichRequests(RequestFilter, frozen=True):
    """A filter, and a page of the matching requests."""

    #: Id of the last request that was read; 0 = from the start.
    after: After = 0
    #: Maximum number of requests.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""


class RequestPage(Listed):
    """Newest first with a filter. Without: sorted by id; continue with `after=next`."""

    items: list[RequestLine]
    next: int | None = None


class CancelRequests(msgspec.Struct, forbid_unknown_fields=True):
    """The requests to cancel. Without `"dry_run": false` nothing changes."""

    filter: RequestFilter
    dry_run: bool = True
    #: Allow an empty filter, which selects every open request.
    all: bool = False
    limit: Batch = 1000
    after: After = 0


class CancelAnswer(msgspec.Struct):
    """The result, or the preview of a dry run."""

    dry_run: bool
    matched: int
    changed: int
    #: Requests that are leased or have ended.
    left: int
    examples: list[RequestLine]
    next: int | None = None


GET_REQUEST = Route("get_request", "GET", "/api/v1/requests/{request}", RequestDetail)
GET_REQUEST_BODY: Route[bytes] = Route(
    "get_request_body",
    "GET",
    "/api/v1/requests/{request}/body",
    media="application/octet-stream",
    seconds=60.0,
    answer_example="<!doctype html><title>Example</title>",
)
GET_REQUEST_HEAD = Route(
    "get_request_head", "GET", "/api/v1/requests/{request}/head", ArchivedHead, seconds=60.0
)
GET_REQUEST_RECORD: Route[bytes] = Route(
    "get_request_record",
    "GET",
    "/api/v1/requests/{request}/record",
    media="application/zstd",
    seconds=60.0,
    answer_example="WARC/1.1",
)
GET_BLOCK = Route("get_block", "GET", "/api/v1/blocks/{block}", BlockDetail)
LIST_REQUESTS = Route(
    "list_requests",
    "GET",
    "/api/v1/requests",
    RequestPage,
    asks=WhichRequests,
    seconds=60.0,
    query_example={"state": "dead"},
)
CANCEL_REQUESTS = Route(
    "cancel_requests",
    "POST",
    "/api/v1/requests/cancel",
    CancelAnswer,
    takes=CancelRequests,
    seconds=60.0,
    example={"filter": {"run": "books", "state": "waiting"}, "dry_run": True},
)


class RequestsClient(Resource):
    """Calls the routes of this file."""

    async def show(self, request: int) -> RequestDetail:
        """Show a request and its attempts."""
        return await self._caller.call(GET_REQUEST, request)

    def body(self, request: int) -> AbstractAsyncContextManager[Download]:
        """The archived body of a request."""
        return self._caller.stream(GET_REQUEST_BODY, request)

    async def head(self, request: int) -> ArchivedHead:
        """Status line and headers of the archived answer."""
        return await self._caller.call(GET_REQUEST_HEAD, request)

    def record(self, request: int) -> AbstractAsyncContextManager[Download]:
        """The archived WARC records of a request."""
        return self._caller.stream(GET_REQUEST_RECORD, request)

    async def block(self, block: int) -> BlockDetail:
        """Show a block and its history."""
        return await self._caller.call(GET_BLOCK, block)

    async def list(self, asks: WhichRequests | None = None) -> RequestPage:
        """List requests."""
        return await self._caller.call(LIST_REQUESTS, asks=asks)

    async def cancel(self, body: CancelRequests) -> CancelAnswer:
        """Cancel open requests by filter."""
        return await self._caller.call(CANCEL_REQUESTS, body=body)
