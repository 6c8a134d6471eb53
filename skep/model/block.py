"""A block: a batch of requests of one run, leased to one agent.

Pure data, for centers and agents. Every write about a block carries its fencing token.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.model.hosts.host import SiteNote
from skep.model.lane import Lane, enters_at_head, lane_of
from skep.model.message_bounds import LIST_LIMIT, SHORT_LIST, Blob, Name, Number, Numbers
from skep.model.request import Outcome
from skep.model.states import BlockState


class BlockRef(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a lane: enough to order and to choose blocks; it need not be durable."""

    id: int
    run: str
    priority: int
    size: int
    #: Which agents may take it, as defined in `model/fleet/placement.py`.
    target: str = ""
    #: It waited at the tail for too long and now enters at the head.
    aged: bool = False

    @property
    def lane(self) -> Lane:
        return lane_of(self.priority)

    @property
    def at_head(self) -> bool:
        return self.aged or enters_at_head(self.priority)


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A leased block; the token fences out earlier holders."""

    block: Number
    token: Number


class Leased(msgspec.Struct, array_like=True):
    """A block as an agent gets it. `body` is a msgpack list of `Work`."""

    id: Number
    token: Number
    run: Name
    size: Number
    body: Blob
    #: Requests in `body` that ended in an earlier lease of the block.
    skip: Numbers = msgspec.field(default_factory=list)

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class BlockReport(msgspec.Struct, array_like=True):
    """Outcomes of a block with their WARC frames; `final` marks the last report of the block."""

    block: Number
    token: Number
    outcomes: Annotated[list[Outcome], Meta(max_length=LIST_LIMIT)]
    final: bool = True
    frames: Blob = b""
    #: What the agent observed about the hosts of the block.
    sites: Annotated[list[SiteNote], Meta(max_length=SHORT_LIST)] = msgspec.field(
        default_factory=list
    )


class BlockView(msgspec.Struct, frozen=True):
    """A block as the API shows it."""

    id: int
    run: str
    state: BlockState
    priority: int
    size: int
    open: int
    token: int
    agent: str
    lease_until: float
    created_at: float


class BlockChange(msgspec.Struct, frozen=True):
    """One entry of a block's history."""

    state: BlockState
    at: float
    detail: str


class EndedRequest(msgspec.Struct, frozen=True):
    """What is known of a request that has ended."""

    id: int
    uri: str
    state: str
    status: int
    failure: str
    detail: str
    meta: dict[str, Any]


class FinishedRequest(EndedRequest, frozen=True):
    """One ended request as its run reads it back."""

    final_uri: str = ""


class FinishedBlock(msgspec.Struct, frozen=True):
    """A block whose requests have all been reported, and which its run has not collected yet."""

    id: int
    run: str
    agent: str
    requests: list[FinishedRequest]
