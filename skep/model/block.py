"""A block: a batch of requests of one run, leased to one agent.

Pure data, for centers and agents. Whoever writes about a block shows its token.
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
    """What a lane holds: enough to order and to choose, nothing that must be durable."""

    id: int
    run: str
    priority: int
    size: int
    #: Who may take it, in the words of `model/fleet/placement.py`.
    target: str = ""
    #: It stood at the tail for too long: it enters at the head now.
    aged: bool = False

    @property
    def lane(self) -> Lane:
        return lane_of(self.priority)

    @property
    def at_head(self) -> bool:
        return self.aged or enters_at_head(self.priority)


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A block in somebody's hands: the token fences out whoever held it before."""

    block: Number
    token: Number


class Leased(msgspec.Struct, array_like=True):
    """A block as it is handed to an agent. `body` is a msgpack list of `Work`."""

    id: Number
    token: Number
    run: Name
    size: Number
    body: Blob
    #: Requests in `body` that have ended already, from an earlier lease of the block.
    skip: Numbers = msgspec.field(default_factory=list)

    @property
    def held(self) -> Held:
        return Held(self.id, self.token)


class BlockReport(msgspec.Struct, array_like=True):
    """Outcomes for a block, some or (`final`) the last of them, with their WARC frames."""

    block: Number
    token: Number
    outcomes: Annotated[list[Outcome], Meta(max_length=LIST_LIMIT)]
    final: bool = True
    frames: Blob = b""
    #: What the agent saw of the hosts in it.
    sites: Annotated[list[SiteNote], Meta(max_length=SHORT_LIST)] = msgspec.field(
        default_factory=list
    )


class BlockView(msgspec.Struct, frozen=True):
    """A block as people see it."""

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
    """One line of a block's history."""

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
    """A block whose requests have all been reported, not yet collected by its run."""

    id: int
    run: str
    agent: str
    requests: list[FinishedRequest]
