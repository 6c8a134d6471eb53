"""What centers ask of a store, one small Protocol per asker.

Every method is one transaction: it is on disk when it returns, or it raised and changed
nothing. `now` is always the center's clock. A method raises `DiskFull` when the database
cannot write, `InvalidInput` for a value that it cannot hold, and `StoreDown` when it does
not answer. After `StoreDown` all of the call or nothing of it is stored (the connection may
have broken while the commit was under way); making the same call again is safe for every
method. `testing/conformance/store.py` proves all of this against each database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from skep.model.attempt import Attempt
from skep.model.block import BlockChange, BlockRef, BlockView, Held, Leased
from skep.model.figures import RunFigures
from skep.model.job import RunLease
from skep.model.ledger import Ledger
from skep.model.manners import Manners
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.app_ports import Apps, Packages
from skep.store.check_ports import Checks
from skep.store.delivery_ports import Deliveries
from skep.store.dispatch_ports import Dispatches
from skep.store.facts import (
    Accepted,
    ArchivedPage,
    Backlog,
    FinishedBlock,
    Freed,
    ItemRow,
    KeptItem,
    Orders,
    Packing,
    PackPlan,
    RequestRow,
    RequestView,
    RetryFacts,
    Settlement,
    TurnKept,
    UnreadBlock,
    Verdict,
)
from skep.store.fire_ports import Fires
from skep.store.fleet_ports import Agents, Tokens
from skep.store.generator_ports import Generations
from skep.store.job_ports import JobRuns, Jobs
from skep.store.placement_ports import Allocations, Placing
from skep.store.record_ports import Failures, Keeping, Notices
from skep.store.site_ports import Sites
from skep.store.wait_ports import Waits


class Runs(Protocol):
    """Asked by `jobs`."""

    async def create(self, run: Run) -> bool:
        """Keep a run. False when one with this id exists; it is then left as it is."""

    async def get(self, run_id: str) -> Run:
        """Raises UnknownRun."""

    async def recent(self, limit: int, before: float | None = None) -> list[Run]:
        """Newest first."""

    async def settings_of(self, run_ids: Sequence[str]) -> dict[str, RunSettings]:
        """For the runs of a lease, with the places that were named; unknown ids are absent."""

    async def name_places(self, run_id: str, places: Collection[str]) -> None:
        """Add places that a person named, up to the limit of a run; raises UnknownRun."""

    async def over(self, run_ids: Sequence[str]) -> list[str]:
        """Those without work for agents: finished, cancelled, failed or not there."""

    async def move(
        self,
        run_id: str,
        to: RunState,
        reason: str = "",
        now: float = 0.0,
        lease: RunLease | None = None,
    ) -> Run:
        """Change the state by the table in `model/states.py`, and keep why; raises Conflict
        otherwise. A run that is in that state already is left as it is. A center that acts
        as the supervisor of a run gives its `lease`; raises LostLease when it has lost it."""


class Requests(Protocol):
    """Asked by `jobs`, by `lanes` and by people."""

    async def accept(self, run_id: str, rows: Sequence[RequestRow], now: float) -> Accepted:
        """Keep them as WAITING, once per (run, fingerprint).

        Raises UnknownRun, and Conflict when the run has ended.
        """

    async def backlog(self, *, failed_only: bool = False) -> list[Backlog]:
        """Runs that are running and have waiting requests, by priority. Of a run that says
        so, or of all with `failed_only`, only those that have failed before count."""

    async def pack(
        self,
        plans: Sequence[PackPlan],
        now: float,
        manners: Manners | None = None,
        placings: Mapping[str, Placing] | None = None,
    ) -> Packing:
        """Move the oldest waiting requests of each plan into READY blocks, in its order.

        A plan of a run that is not running makes none. A block is closed early when its
        requests are large, so that every engine and agent can hold it. Raises UnknownRun.

        A host to which `manners` give a pace is in one open block at a time; what waits
        for it beyond that is parked (DELAYED, no failure counted) and woken by
        `Sites.wake`, or by its time. Without `manners` no host has a pace.

        Requests of a run whose placement is more than `any` go where its entry in `placings`
        says, or are held back: parked for some seconds. A block has one target.
        """

    async def wake(self, now: float, limit: int) -> int:
        """DELAYED requests that are due become WAITING; returns how many."""

    async def expire(self, now: float, limit: int) -> int:
        """WAITING and DELAYED requests past their time become EXPIRED; returns how many.

        Those in a block are seen to by `Blocks.lease`.
        """

    async def cancel(self, run_id: str, now: float) -> int:
        """Everything of a run that is not in an agent's hands becomes CANCELLED."""

    async def revive(self, run_id: str) -> int:
        """DEAD requests of a run become WAITING again, with their failures forgiven.

        Raises Conflict when the run is cancelled.
        """

    async def get(self, request_id: int) -> RequestView:
        """Raises NotFound."""

    async def retry_facts(self, request_ids: Sequence[int]) -> dict[int, RetryFacts]:
        """By id: failures so far, and what its run says about retries; unknown ids are absent."""

    async def attempts(self, request_id: int) -> list[Attempt]:
        """Its whole history, oldest first."""


class Turns(Protocol):
    """Asked for the drivers of runs (spiders). One driver at a time: the token fences."""

    async def take_over(self, run_id: str, patience: float = 0.0, now: float = 0.0) -> int:
        """A new driver's token; every older one is stale from now on. Raises UnknownRun.

        `patience`: seconds that it may be silent before its run is given up; 0 = for ever.
        """

    async def orders(self, run_id: str) -> Orders:
        """The run's state and what is asked of its driver. Raises UnknownRun."""

    async def ask(self, run_id: str, what: str) -> None:
        """Leave a word for the driver; whoever takes over next does not hear it. Raises
        Conflict when the run has no driver."""

    async def end(self, run_id: str, driver: int, to: RunState, reason: str, now: float) -> None:
        """The driver's last word: paused, failed or finished, and why. A finished run's open
        requests are CANCELLED by the same transaction, except those in agents' hands.

        Raises StaleToken when another driver took over, Conflict when `to` is not legal.
        """

    async def give_up_silent(self, now: float) -> list[str]:
        """Running runs whose driver was silent for too long become FAILED; their names."""

    async def unread(self, run_id: str, limit: int, taken: Sequence[int]) -> list[UnreadBlock]:
        """Finished blocks that no turn has taken, except `taken`, oldest first."""

    async def turn(
        self,
        run_id: str,
        driver: int,
        blocks: Sequence[int],
        items: Sequence[ItemRow],
        rows: Sequence[RequestRow],
        now: float,
    ) -> TurnKept:
        """Blocks read, items found, requests wanted: all or nothing, and once.

        Raises StaleToken when another driver took over, Conflict when the run has ended.
        """

    async def items(self, run_id: str, after: int, limit: int) -> list[KeptItem]:
        """Items in the order of their ids."""

    async def items_of(self, run_id: str, request_ids: Sequence[int]) -> list[KeptItem]:
        """The items of these requests' pages, in the order of their ids."""

    async def count(self, run_id: str) -> int:
        """How many items the run has."""

    async def ended(
        self, run_id: str, after: int, limit: int, *, collected: bool
    ) -> list[UnreadBlock]:
        """Blocks that ended, with ids over `after`, in the order of their ids; with
        `collected` only those that a turn has taken. Reading them changes nothing."""


class Blocks(Protocol):
    """Asked by `lanes`. The only place where a lease is real."""

    async def lease(
        self,
        block_ids: Sequence[int],
        agent: str,
        now: float,
        until: float,
        manners: Manners | None = None,
    ) -> list[Leased]:
        """Give blocks that are READY or RETRY to an agent; others are left out silently.

        Each lease raises the block's token by one. Requests that are past their time are
        EXPIRED first, and named in `skip`; a block of which nothing is left is FAILED and
        left out. So is, though it stays claimable, a block that was cut out for one request
        while another open block has its host.
        """

    async def renew(self, held: Sequence[Held], agent: str, until: float) -> list[int]:
        """Extend leases; returns the blocks that are not (or no longer) this agent's."""

    async def renew_many(
        self, asks: Sequence[tuple[str, Sequence[Held]]], until: float
    ) -> list[list[int]]:
        """`renew` for several agents at once, each with what it holds; answers in order."""

    async def owned(self, held: Sequence[Held], agent: str) -> set[Held]:
        """Those of these blocks that the agent has now, under just these tokens."""

    async def settle(
        self, settlements: Sequence[Settlement], now: float, manners: Manners | None = None
    ) -> list[Verdict]:
        """Write outcomes. A stale token changes nothing; an outcome counts once, and so
        does a note about a host. Deferred requests leave the block and come again.

        Raises InvalidInput, and stores nothing of the whole call, when a report names a
        request that is not in its block. In a cancelled run failures and what a last
        report leaves open become CANCELLED.
        """

    async def give_back(
        self, held: Sequence[Held], agent: str, now: float, reason: str
    ) -> list[BlockRef]:
        """An agent returns what it has not done; it is ready again at once.

        Blocks of cancelled runs end instead, and are not in the answer.
        """

    async def leased(self, limit: int) -> list[tuple[str, Held]]:
        """Blocks in agents' hands, with the agent; for a store that was restored."""

    async def reap(
        self, now: float, dead_agents: Sequence[str], lease_limit: int, limit: int
    ) -> list[Freed]:
        """Take back blocks whose lease ran out or whose agent is dead.

        A block lost `lease_limit` times is FAILED and its open requests are DEAD (`lost`).
        """

    async def abandon(
        self, agent: str, holding: Sequence[Held], now: float, lease_limit: int
    ) -> list[Freed]:
        """An agent came back and has only `holding`: take back the rest, as `reap` does."""

    async def claimable(self, limit: int, after: int = 0) -> list[BlockRef]:
        """READY and RETRY blocks of running runs with ids over `after`, oldest first, to
        rebuild lanes from."""

    async def still_claimable(self, block_ids: Sequence[int]) -> set[int]:
        """Those of the given blocks that are READY or RETRY and belong to a running run."""

    async def finished(self, run_id: str, limit: int) -> list[FinishedBlock]:
        """Blocks that ended and were not collected, oldest first. Raises UnknownRun."""

    async def strange(self, run_id: str, block_ids: Sequence[int]) -> list[int]:
        """Those of these numbers that no block of the run has. Raises UnknownRun."""

    async def collect(self, run_id: str, block_ids: Sequence[int]) -> int:
        """The run has read these; returns how many were marked now."""

    async def get(self, block_id: int) -> BlockView:
        """Raises UnknownBlock."""

    async def history(self, block_id: int) -> list[BlockChange]:
        """Oldest first."""


class Ledgers(Protocol):
    """Asked by everybody who wants to know whether all is there."""

    async def read(self, run_id: str | None = None) -> Ledger:
        """From running counts, written in the transaction of every change: fast."""

    async def audit(self, run_id: str | None = None) -> Ledger:
        """Counted row by row, without the running counts: slow, and independent of them."""


class Figures(Protocol):
    """Asked by people: what came of a run so far. Cheap however large the run is."""

    async def read(self, run_id: str, now: float) -> RunFigures:
        """Counted with every report. Raises UnknownRun."""

    async def forget_rates(self, now: float) -> int:
        """Keep what the rate is made of bounded."""


class Alerts(Protocol):
    """Asked by `lanes`: things that a person should see, such as a full lane."""

    async def raise_(self, kind: str, subject: str, detail: str, now: float) -> None:
        """One row per (kind, subject), with a count and the newest detail."""

    async def recent(self, limit: int) -> list[dict[str, Any]]:
        """Newest first."""


class Segments(Protocol):
    """Asked by the archive at start: where do the committed bytes of a segment end?"""

    async def committed_end(self, segment: str) -> int:
        """The highest offset + length that any attempt refers to; 0 when none does."""

    async def adopt(self, run: str, segment: str, pages: Sequence[ArchivedPage]) -> int:
        """Make a request that is done of each page of the segment that no attempt refers to,
        in a run that exists; how many they were. For `skep archive rebuild`."""


class Store(Protocol):
    """Everything, opened by URL in `store/registry.py`."""

    @property
    def runs(self) -> Runs: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def blocks(self) -> Blocks: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def allocations(self) -> Allocations: ...
    @property
    def ledgers(self) -> Ledgers: ...
    @property
    def figures(self) -> Figures: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def alerts(self) -> Alerts: ...
    @property
    def fires(self) -> Fires: ...
    @property
    def segments(self) -> Segments: ...
    @property
    def sites(self) -> Sites: ...
    @property
    def waits(self) -> Waits: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def dispatches(self) -> Dispatches: ...
    @property
    def job_runs(self) -> JobRuns: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def generations(self) -> Generations: ...
    @property
    def failures(self) -> Failures: ...
    @property
    def keeping(self) -> Keeping: ...
    @property
    def notices(self) -> Notices: ...
    @property
    def apps(self) -> Apps: ...
    @property
    def packages(self) -> Packages: ...
    @property
    def checks(self) -> Checks: ...

    async def open(self) -> None:
        """Connect and bring the schema to this version, under a lock."""

    async def close(self) -> None:
        """Finish what was begun and let go."""

    async def ping(self) -> None:
        """Raises StoreDown."""

    def describe(self) -> str:
        """The URL without its password, for people."""
