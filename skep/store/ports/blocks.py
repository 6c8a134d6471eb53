"""The store's contract for blocks. The rules of `store/ports` apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from skep.model.block import (
    BlockChange,
    BlockRef,
    BlockReport,
    BlockView,
    FinishedBlock,
    Held,
    Leased,
)
from skep.model.hosts.politeness import Politeness


class Blocks(Protocol):
    """Used by `lanes`. A lease is valid only if it is stored here."""

    async def lease(
        self,
        block_ids: Sequence[int],
        agent: str,
        now: float,
        until: float,
        politeness: Politeness | None = None,
    ) -> list[Leased]:
        """Lease blocks that are READY or RETRY to an agent; others are left out silently.

        Each lease raises the block's token by one. Requests that have expired become EXPIRED
        first, and are listed in `skip`; a block with no requests left is FAILED and left out.
        Also left out, though it stays claimable, is a block that was split off for one request
        while another open block holds its host.
        """

    async def renew(self, held: Sequence[Held], agent: str, until: float) -> list[int]:
        """Extend leases; returns the blocks that this agent does not hold (any more)."""

    async def renew_many(
        self, asks: Sequence[tuple[str, Sequence[Held]]], until: float
    ) -> list[list[int]]:
        """`renew` for several agents at once, each with the blocks it holds; answers in order."""

    async def owned(self, held: Sequence[Held], agent: str) -> set[Held]:
        """Those of these blocks that the agent holds now, under exactly these tokens."""

    async def settle(
        self, settlements: Sequence[Settlement], now: float, politeness: Politeness | None = None
    ) -> list[SettleResult]:
        """Write outcomes. A stale token changes nothing; an outcome counts once, and so does a
        note about a host. Deferred requests leave the block and are packed again.

        Raises InvalidInput, and stores nothing of the whole call, when a report names a
        request that is not in its block. In a cancelled run, failed requests and requests that
        a final report leaves open become CANCELLED.
        """

    async def give_back(
        self, held: Sequence[Held], agent: str, now: float, reason: str
    ) -> list[BlockRef]:
        """An agent returns unfinished blocks; they are ready again at once.

        Blocks of cancelled runs end instead, and are not returned.
        """

    async def leased(self, limit: int) -> list[tuple[str, Held]]:
        """Leased blocks, with the agent; for a store that was restored."""

    async def reap(
        self, now: float, dead_agents: Sequence[str], lease_limit: int, limit: int
    ) -> list[Freed]:
        """Take back blocks whose lease expired or whose agent is dead.

        A block lost `lease_limit` times is FAILED and its open requests are DEAD (`lost`).
        """

    async def abandon(
        self, agent: str, holding: Sequence[Held], now: float, lease_limit: int
    ) -> list[Freed]:
        """An agent came back and holds only `holding`: take back the rest, as `reap` does."""

    async def claimable(self, limit: int, after: int = 0) -> list[BlockRef]:
        """READY and RETRY blocks of running runs with ids over `after`, oldest first, to
        rebuild lanes from."""

    async def still_claimable(self, block_ids: Sequence[int]) -> set[int]:
        """Those of the given blocks that are READY or RETRY and belong to a running run."""

    async def finished(self, run_id: str, limit: int) -> list[FinishedBlock]:
        """Blocks that ended and were not collected, oldest first. Raises UnknownRun."""

    async def strange(self, run_id: str, block_ids: Sequence[int]) -> list[int]:
        """Those of these ids that are not blocks of the run. Raises UnknownRun."""

    async def collect(self, run_id: str, block_ids: Sequence[int]) -> int:
        """The run has read these; returns how many were marked now."""

    async def get(self, block_id: int) -> BlockView:
        """Raises UnknownBlock."""

    async def history(self, block_id: int) -> list[BlockChange]:
        """Oldest first."""


class RetryFacts(NamedTuple):
    """The facts that decide whether and when a failed request is retried."""

    failures: int
    #: The settings of its run; 0 seconds = the setting of the center.
    retries: int
    backoff_first: float = 0.0
    backoff_cap: float = 0.0


class RetryRule(msgspec.Struct, frozen=True):
    """When failed requests are retried, or that they are not."""

    #: request id -> not before (center's clock); a failed request not in here is dead.
    again_at: dict[int, float]


class Placed(msgspec.Struct, frozen=True):
    """Location of the frames of one report in the archive."""

    segment: str = ""
    offset: int = 0


class Settlement(msgspec.Struct, frozen=True):
    """A block report with the center's decisions about it."""

    report: BlockReport
    agent: str
    retry: RetryRule
    placed: Placed = Placed()


class SettleResult(msgspec.Struct, frozen=True):
    """The result of one settlement: `stored`, `duplicate`, `stale` or `unknown`."""

    block: int
    verdict: str
    #: Outcomes that were new and are now on disk.
    stored: int = 0
    #: The run of the block, and how many of its requests became dead; of `stored` ones.
    run: str = ""
    dead: int = 0


class Freed(msgspec.Struct, frozen=True):
    """A block taken back from an agent, and ready again unless `ref` is None."""

    block: int
    agent: str
    reason: str
    ref: BlockRef | None
