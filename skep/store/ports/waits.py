"""What centers ask of a store about things that wait; a part of `store/ports`.

Run by centers only. Reading alone, and never many rows, however many wait; `why` makes
sentences of the answers.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from skep.model.hosts.politeness import HostPoliteness
from skep.model.ledger import Ledger
from skep.model.run import Run
from skep.model.states import BlockState, RequestState


class Waits(Protocol):
    """Asked for people who wonder why something does not run.

    Each is one look that reads few rows, by indexes, however many there are; it changes
    nothing.
    """

    async def request(self, request_id: int) -> RequestWait:
        """Raises NotFound."""

    async def block(self, block_id: int) -> BlockWait:
        """Raises UnknownBlock."""

    async def run(self, run_id: str) -> RunWait:
        """Raises UnknownRun."""

    async def site(self, host: str) -> HostFacts:
        """Also of a host that nobody knows, which says so."""


#: Nothing is counted further than this: more is "many".
COUNT_LIMIT = 1000


class BlockFacts(msgspec.Struct, frozen=True):
    """A block's row, and when it came into its state."""

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
    """Who has a host: the open block, or nobody any more (`block` is None)."""

    block: int | None
    #: When the block should be through with it.
    until: float
    spacing: float
    run: str = ""
    agent: str = ""
    state: BlockState | None = None
    open: int = 0


class HostFacts(msgspec.Struct, frozen=True):
    """A host as it stands; `known` is False when nobody has asked it or set a rule."""

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
    """To whom a request of a chain belongs."""

    agent: str
    #: It waits until that agent has fetched this request; None = it is the agent's now.
    first: int | None = None


class RequestWait(msgspec.Struct, frozen=True):
    """A request with everything that may keep it waiting."""

    id: int
    uri: str
    priority: int
    #: As its row says; whether its block is in somebody's hands stands in `block`.
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
    """What an agent has in its hands."""

    agent: str
    blocks: int
    #: Requests of them without an answer.
    requests: int


class BlockWait(msgspec.Struct, frozen=True):
    """A block with everything that may keep it waiting."""

    block: BlockFacts
    run: Run
    #: Hosts that it has, or (cut out for one request) wants; a few of them.
    hosts: list[HostFacts]
    #: What its agent took before it and has not ended; None when no agent has it.
    ahead: InHand | None = None


class DriverFacts(msgspec.Struct, frozen=True):
    """The process that reads a run's pages, as it was last heard."""

    heard_at: float
    #: Seconds that it may be silent; None = it has said its last word, 0 = for ever.
    patience: float | None


class Delayed(msgspec.Struct, frozen=True):
    """A delayed request of a run."""

    id: int
    host: str
    failures: int
    not_before: float


class RunWait(msgspec.Struct, frozen=True):
    """A run with everything that may keep it waiting."""

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
    #: A dead request with the most frequent failure of those that were looked at.
    dead: Failed | None = None
