"""The store's contract for explanations. The rules of `store/ports` apply.

Run by centers only. It only reads, and never many rows, however many requests wait; `why`
turns the answers into sentences.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from skep.model.hosts.politeness import HostPoliteness
from skep.model.ledger import Ledger
from skep.model.run import Run
from skep.model.states import BlockState, RequestState


class Waits(Protocol):
    """Facts that explain why something does not run.

    Each method reads few rows, by indexes, however many there are; it changes nothing.
    """

    async def request(self, request_id: int) -> RequestWait:
        """Raises NotFound."""

    async def block(self, block_id: int) -> BlockWait:
        """Raises UnknownBlock."""

    async def run(self, run_id: str) -> RunWait:
        """Raises UnknownRun."""

    async def site(self, host: str) -> HostFacts:
        """Returns unknown hosts too, with `known` False."""


#: Counting stops at this number: more is "many".
COUNT_LIMIT = 1000


class BlockFacts(msgspec.Struct, frozen=True):
    """A block's row, and when it entered its state."""

    id: int
    run: str
    priority: int
    state: BlockState
    token: int
    agent: str
    #: The one agent that may take it; "" = any.
    target: str
    lease_until: float
    changed_at: float
    #: Why it is in its state.
    detail: str
    size: int
    open: int
    losses: int
    expires_at: float | None
    answer_by: float | None


class Hold(msgspec.Struct, frozen=True):
    """The open block that holds a host; `block` is None when it was released."""

    block: int | None
    #: When the block should be done with it.
    until: float
    spacing: float
    run: str = ""
    agent: str = ""
    state: BlockState | None = None
    open: int = 0


class HostFacts(msgspec.Struct, frozen=True):
    """The state of a host; `known` is False when it has no requests and no rule."""

    site: HostPoliteness
    hold: Hold | None = None
    known: bool = True


class LastTry(msgspec.Struct, frozen=True):
    """The newest attempt of a request."""

    at: float
    agent: str
    failure: str
    status: int
    detail: str


class Failed(msgspec.Struct, frozen=True):
    """A request of a run whose last attempt failed, as an example of others."""

    uri: str
    last: LastTry


class ChainFacts(msgspec.Struct, frozen=True):
    """The agent that a request of a chain belongs to."""

    agent: str
    #: It waits until that agent has fetched this request; None = it does not wait.
    first: int | None = None


class RequestWait(msgspec.Struct, frozen=True):
    """A request with all facts that can keep it waiting."""

    id: int
    uri: str
    priority: int
    #: The state in its row; `block` says whether its block is leased.
    state: RequestState
    failures: int
    not_before: float
    expires_at: float | None
    created_at: float
    run: Run
    host: HostFacts
    last: LastTry | None = None
    #: The block that it is in now.
    block: BlockFacts | None = None
    #: Requests before it: of its run and priority when it is WAITING, of its host when it is
    #: parked; no more than COUNT_LIMIT are counted.
    before: int = 0
    #: Of a request in a chain.
    chain: ChainFacts | None = None


class InHand(msgspec.Struct, frozen=True):
    """The blocks that an agent holds."""

    agent: str
    blocks: int
    #: Their requests without an outcome.
    requests: int


class BlockWait(msgspec.Struct, frozen=True):
    """A block with all facts that can keep it waiting."""

    block: BlockFacts
    run: Run
    #: Hosts that it holds, or (split off for one request) needs; a few of them.
    hosts: list[HostFacts]
    #: Blocks that its agent took before it and that have not ended; None when not leased.
    ahead: InHand | None = None


class DriverFacts(msgspec.Struct, frozen=True):
    """The process that reads a run's pages, and its last call."""

    heard_at: float
    #: Seconds without a call after which it times out; None = it has ended, 0 = never.
    patience: float | None


class Delayed(msgspec.Struct, frozen=True):
    """A delayed request of a run."""

    id: int
    host: str
    failures: int
    not_before: float


class RunWait(msgspec.Struct, frozen=True):
    """A run with all facts that can keep it waiting."""

    run: Run
    ledger: Ledger
    #: Priorities at which requests of it are WAITING.
    priorities: tuple[int, ...]
    in_hands: list[InHand]
    #: Some of its delayed requests, those due first where they were found at all.
    delayed: list[Delayed]
    #: The hosts of these.
    hosts: dict[str, HostFacts]
    driver: DriverFacts | None = None
    #: Ended requests that no driver has read, in no more than COUNT_LIMIT blocks.
    unread: int = 0
    #: The delayed request whose retry comes first.
    retried: Failed | None = None
    #: A dead request with the most frequent failure of a sample.
    dead: Failed | None = None
