"""The store's contract for requests and the ledger. The rules of `store/ports` apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from skep.model.attempt import Attempt
from skep.model.block import BlockRef
from skep.model.dispatch import DispatchOrder
from skep.model.hosts.politeness import Politeness
from skep.model.ledger import Ledger
from skep.model.people.audit import AuditRow
from skep.model.request import Accepted
from skep.model.states import RequestState
from skep.store.ports.blocks import RetryFacts
from skep.store.ports.placement import Placing


class Requests(Protocol):
    """Used by `jobs`, by `lanes` and by the API."""

    async def accept(
        self,
        run_id: str,
        rows: Sequence[RequestRow],
        now: float,
        audit: AuditRow | None = None,
    ) -> Accepted:
        """Store them as WAITING, once per (run, fingerprint), with the audit row of the call.

        Raises UnknownRun, and Conflict when the run has ended.
        """

    async def backlog(self, *, failed_only: bool = False) -> list[Backlog]:
        """Running runs with waiting requests, by priority. With `failed_only`, or where the run
        is set so, only requests that failed before count."""

    async def pack(
        self,
        plans: Sequence[PackPlan],
        now: float,
        politeness: Politeness | None = None,
        placings: Mapping[str, Placing] | None = None,
    ) -> Packing:
        """Move the oldest waiting requests of each plan into READY blocks, in its order.

        A plan of a run that is not running makes none. A block is closed early when its
        requests are large, so that every engine and agent can hold it. Raises UnknownRun.

        A host to which `politeness` gives a pace is in one open block at a time; other requests
        to it are parked (DELAYED, no failure counted) and woken by `Hosts.wake`, or at their
        own time. Without `politeness` no host has a pace.

        Requests of a run whose placement is more than `any` go where its entry in `placings`
        says, or are held back: parked for some seconds. A block has one target.
        """

    async def wake(self, now: float, limit: int) -> int:
        """DELAYED requests that are due become WAITING; returns how many."""

    async def expire(self, now: float, limit: int) -> int:
        """WAITING and DELAYED requests that are past their time become EXPIRED; returns how many.

        `Blocks.lease` expires those in a block.
        """

    async def cancel(self, run_id: str, now: float) -> int:
        """All requests of a run that are not leased become CANCELLED."""

    async def revive(self, run_id: str) -> int:
        """DEAD requests of a run become WAITING again, with their failures reset.

        Raises Conflict when the run is cancelled.
        """

    async def get(self, request_id: int) -> RequestView:
        """Raises NotFound."""

    async def retry_facts(self, request_ids: Sequence[int]) -> dict[int, RetryFacts]:
        """By id: failures so far, and the retry settings of its run; unknown ids are absent."""

    async def attempts(self, request_id: int) -> list[Attempt]:
        """Its whole history, oldest first."""


class Ledgers(Protocol):
    """Used to check that no request is lost."""

    async def read(self, run_id: str | None = None) -> Ledger:
        """From running counts, written in the transaction of every change: fast."""

    async def audit(self, run_id: str | None = None) -> Ledger:
        """Counted row by row, without the running counts: slow, and independent of them."""


class RequestRow(msgspec.Struct, frozen=True):
    """A request that passed validation, ready to be stored."""

    fingerprint: bytes
    uri: str
    host: str
    priority: int
    #: msgpack of what `Work` needs beyond id and uri: (method, headers, body, meta).
    arguments: bytes
    expires_at: float | None = None
    #: The request on whose page it was found; used in chained runs.
    parent: int | None = None


class PackPlan(msgspec.Struct, frozen=True):
    """What one dispatch takes from one run: at most `limit` requests of one priority."""

    run: str
    priority: int
    limit: int
    block_size: int
    order: DispatchOrder = "priority"
    failed_only: bool = False
    #: Requests of each of several rounds; they add up to `limit`. () = one round.
    rounds: tuple[int, ...] = ()


class Packing(msgspec.Struct, frozen=True):
    """The result of packing: new blocks, and the number of parked requests."""

    blocks: list[BlockRef]
    #: Requests whose host must not be contacted now: they are parked, uncounted.
    parked: int = 0


class Backlog(msgspec.Struct, frozen=True):
    """Waiting requests of a running run at one priority; `waiting` may be an estimate."""

    run: str
    priority: int
    waiting: int
    block_size: int
    #: The run's job, "" when it has none, and the most that one dispatch takes from it.
    job: str = ""
    dispatch: int = 100
    order: DispatchOrder = "priority"
    failed_only: bool = False


class RequestView(msgspec.Struct, frozen=True):
    """A request as the API shows it."""

    id: int
    run: str
    uri: str
    priority: int
    state: RequestState
    failures: int
    block: int | None
    created_at: float
    not_before: float
