"""Submits requests to a run, and reads ended ones by block: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.block import FinishedBlock
from skep.model.request import Accepted, Offered
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

BlockId = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class FinishedPage(msgspec.Struct):
    """The number of blocks to read."""

    #: Number of blocks to read.
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class Finished(msgspec.Struct):
    """Blocks that ended and that the run has not collected yet."""

    blocks: list[FinishedBlock]


class Collect(msgspec.Struct, forbid_unknown_fields=True):
    """Blocks that the run has read and does not need again."""

    blocks: Annotated[list[BlockId], Meta(max_length=10_000)]


class Collected(msgspec.Struct):
    """Number of blocks that this call marked."""

    blocks: int


ADD_REQUESTS = Route(
    "add_requests",
    "POST",
    "/api/v1/runs/{run}/requests",
    Accepted,
    takes=list[Offered],
    status=202,
    seconds=60.0,
    example=["https://example.org/", {"uri": "https://example.org/a", "meta": {"page": 2}}],
)
#: The older path of `ADD_REQUESTS`.
SUBMIT_REQUESTS = Route(
    "submit_requests",
    "POST",
    "/requestqueue/{identity}",
    Accepted,
    takes=list[Offered],
    status=202,
    seconds=60.0,
    example=["https://example.org/", {"uri": "https://example.org/a", "meta": {"page": 2}}],
)
LIST_FINISHED_REQUESTS = Route(
    "list_finished_requests", "GET", "/requestqueue/{identity}", Finished, asks=FinishedPage
)
MARK_BLOCKS_COLLECTED = Route(
    "mark_blocks_collected",
    "POST",
    "/requestqueue/{identity}/collected",
    Collected,
    takes=Collect,
    example={"blocks": [1]},
)


class QueueClient(Resource):
    """Calls the routes of this file."""

    async def add(self, run: str, requests: list[Offered]) -> Accepted:
        """Add requests to a run."""
        return await self._caller.call(ADD_REQUESTS, run, body=requests)

    async def submit(self, run: str, requests: list[Offered]) -> Accepted:
        """Add requests to a run, by the older path that every center knows."""
        return await self._caller.call(SUBMIT_REQUESTS, run, body=requests)

    async def finished(self, run: str, asks: FinishedPage | None = None) -> Finished:
        """Read finished requests by block."""
        return await self._caller.call(LIST_FINISHED_REQUESTS, run, asks=asks)

    async def collect(self, run: str, body: Collect) -> Collected:
        """Mark finished blocks as read."""
        return await self._caller.call(MARK_BLOCKS_COLLECTED, run, body=body)
