"""What goes into a store and comes out of it: the words of `store/ports.py`. Pure data.

Centers alone see them; what agents and people get has words of its own in `model` and `wire`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from skep.model.block import BlockRef, BlockReport
from skep.model.dispatch import DispatchOrder
from skep.model.manners import Site
from skep.model.states import RequestState, RunState


class RequestRow(msgspec.Struct, frozen=True):
    """A request that passed validation, ready to be kept."""

    fingerprint: bytes
    uri: str
    host: str
    priority: int
    #: msgpack of what `Work` needs beyond id and uri: (method, headers, body, meta).
    arguments: bytes
    expires_at: float | None = None
    #: The request on whose page it was found; counts in chained runs.
    parent: int | None = None


class ArchivedPage(msgspec.Struct, frozen=True):
    """A page as the archive alone knows it."""

    offset: int
    length: int
    uri: str
    status: int
    address: str
    at: float
    received: int


class Accepted(msgspec.Struct, frozen=True):
    """How many of the offered requests are new; the others were there already."""

    new: int
    known: int


class PackPlan(msgspec.Struct, frozen=True):
    """What one dispatch takes from one run: at most `limit` requests of one priority."""

    run: str
    priority: int
    limit: int
    block_size: int
    order: DispatchOrder = "priority"
    failed_only: bool = False
    #: What each of several rounds gives of it; they add up to `limit`. () = there is one.
    rounds: tuple[int, ...] = ()


class Packing(msgspec.Struct, frozen=True):
    """What became of waiting requests: new blocks, and how many were parked."""

    blocks: list[BlockRef]
    #: Requests whose host is not to be asked now: they wait aside, uncounted.
    parked: int = 0


class HeldSite(msgspec.Struct, frozen=True):
    """A host, and the open block that has it."""

    block: int
    site: Site
    #: Tries for robots.txt by the block's run were enough: how the last of them failed.
    failure: str = ""
    detail: str = ""


class SiteRow(msgspec.Struct, frozen=True):
    """A host with its counts, and in whose hands it is."""

    site: Site
    requests: int
    failed: int
    refused: int
    barred: int
    deferred: int
    received: int
    elapsed_us: int
    last_at: float
    agent: str = ""
    run: str = ""
    block: int | None = None


class Backlog(msgspec.Struct, frozen=True):
    """Waiting requests of a running run at one priority; `waiting` may be an estimate."""

    run: str
    priority: int
    waiting: int
    block_size: int
    #: The run's job, "" when it has none, and the most that one round takes from it.
    job: str = ""
    dispatch: int = 100
    order: DispatchOrder = "priority"
    failed_only: bool = False


class RetryFacts(NamedTuple):
    """What decides whether and when a request that failed is tried again."""

    failures: int
    #: As its run says; 0 seconds leave it to the center.
    retries: int
    backoff_first: float = 0.0
    backoff_cap: float = 0.0


class RetryRule(msgspec.Struct, frozen=True):
    """What to do with a request that failed: when again, or never."""

    #: request id -> not before (center's clock); a failed request not in here is dead.
    again_at: dict[int, float]


class Placed(msgspec.Struct, frozen=True):
    """Where the archive put the frames of one report."""

    segment: str = ""
    offset: int = 0


class Settlement(msgspec.Struct, frozen=True):
    """A block report with the decisions that the center took about it."""

    report: BlockReport
    agent: str
    retry: RetryRule
    placed: Placed = Placed()


class Verdict(msgspec.Struct, frozen=True):
    """What happened to one settlement: `stored`, `duplicate`, `stale` or `unknown`."""

    block: int
    verdict: str
    #: Outcomes that were new and are now on disk.
    stored: int = 0


class Freed(msgspec.Struct, frozen=True):
    """A block taken back from an agent, and ready again unless `ref` is None."""

    block: int
    agent: str
    reason: str
    ref: BlockRef | None


class FinishedRequest(msgspec.Struct, frozen=True):
    """One ended request as its run reads it back."""

    id: int
    uri: str
    state: str
    status: int
    failure: str
    detail: str
    meta: dict[str, Any]
    final_uri: str = ""


class FinishedBlock(msgspec.Struct, frozen=True):
    """A block whose requests have all been reported, not yet collected by its run."""

    id: int
    run: str
    agent: str
    requests: list[FinishedRequest]


class UnreadPage(msgspec.Struct, frozen=True):
    """One ended request of a run that its driver has not read, and where its bytes are."""

    id: int
    uri: str
    state: str
    status: int
    failure: str
    detail: str
    meta: dict[str, Any]
    final_uri: str
    elapsed_us: int
    segment: str
    offset: int
    length: int


class UnreadBlock(msgspec.Struct, frozen=True):
    """A finished block that no turn has taken yet."""

    id: int
    pages: list[UnreadPage]


class ItemRow(msgspec.Struct, frozen=True):
    """The `n`th item of a request's page, as msgpack."""

    request: int
    n: int
    data: bytes


class KeptItem(msgspec.Struct, frozen=True):
    """An item as it is read back; ids grow in the order of the run's turns."""

    id: int
    request: int
    data: bytes


class Orders(msgspec.Struct, frozen=True):
    """What the driver of a run should know at once."""

    state: RunState
    #: Why the run is in that state.
    reason: str = ""
    #: What somebody asks of the driver's process; "" = nothing.
    asked: str = ""


class TurnKept(msgspec.Struct, frozen=True):
    """What a turn added."""

    requests: Accepted
    items: int


class RequestView(msgspec.Struct, frozen=True):
    """A request as people see it."""

    id: int
    run: str
    uri: str
    priority: int
    state: RequestState
    failures: int
    block: int | None
    created_at: float
    not_before: float
