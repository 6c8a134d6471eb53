"""What centers ask of a store about placement; a part of `store/ports`, under its rules.

Run by centers only. What was chosen is kept before any agent hears of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from skep.model.fleet.placement import run_target
from skep.model.run import RunSettings
from skep.model.states import RunState


class Wanted(NamedTuple):
    """What is known about a request when an agent is sought for it."""

    uri: str
    host: str
    session: str = ""
    #: The agent that it belongs to in a chain, or `>N`: whoever fetches request N; None = free.
    place: str | None = None


class Placing(Protocol):
    """Who takes the requests of one run, just now."""

    @property
    def by_session(self) -> bool:
        """Does it look at sessions? They lie in a request's arguments."""

    @property
    def chained(self) -> bool:
        """Does it look at places?"""

    def target(self, wanted: Wanted) -> str | None:
        """The target of the block that it goes into; None = it is held back for now."""


class AllocationSlot(msgspec.Struct, frozen=True):
    """An agent that was chosen for a run."""

    agent: str
    slot: int
    since: float
    #: When it was given up, and why; None = it is the run's.
    until: float | None = None
    why: str = ""


class Allocation(msgspec.Struct, frozen=True):
    """The agents that were chosen for a run, by its rule."""

    run: str
    number: int
    state: RunState
    settings: RunSettings
    at: float
    seats: list[AllocationSlot]
    released_at: float | None = None

    @property
    def target(self) -> str:
        """Of blocks that any agent of the run may take."""
        return run_target(self.number)

    @property
    def agents(self) -> list[str]:
        """Those that are the run's, in their order."""
        return [seat.agent for seat in self.seats if seat.until is None]


class Allocations(Protocol):
    """Asked by `placement`. A run without a rule of its own has no allocation."""

    async def allocate(self, run_id: str, agents: Sequence[str], now: float) -> Allocation:
        """Keep a choice; when the run has one already, that one is kept and given back, and
        is open again if it was released.

        Raises UnknownRun.
        """

    async def get(self, run_id: str) -> Allocation | None:
        """Raises UnknownRun."""

    async def open(self) -> list[Allocation]:
        """Those that are not released, oldest first."""

    async def of_agent(self, agent: str, limit: int) -> list[Allocation]:
        """Those that an agent has a seat in, newest first."""

    async def ended(self, limit: int) -> list[Allocation]:
        """Open allocations of runs that have ended or failed, oldest first. One that is
        continued gets the same agents again."""

    async def release(self, run_ids: Sequence[str], now: float) -> list[Allocation]:
        """Close the allocations of these runs, if they have ended. Returns those that this
        call closed: of several callers one gets each."""

    async def replace(self, run_id: str, gone: str, to: str, why: str, now: float) -> bool:
        """Another agent takes a seat; False when the seat is not `gone`'s any more."""

    async def belonging(self, run_id: str, agent: str) -> int:
        """Requests of a chain that have not ended and can go to no other agent."""

    async def targets(self) -> list[str]:
        """Whom claimable blocks wait for, but those that wait for anybody."""

    async def unpack(self, targets: Sequence[str], now: float, limit: int) -> list[int]:
        """Take claimable blocks for these targets apart: they are FAILED, their requests
        DELAYED and due at once. Returns the blocks."""

    async def restart_chains(self, run_id: str, gone: str, to: str, now: float) -> int:
        """Chains of an agent begin again on another: copies of their first requests belong to
        it and wait; what is open waits for those. Returns how many chains."""

    async def rejoin(self, run_id: str) -> list[int]:
        """What waited for a first request goes to whoever fetched it; returns first requests
        that could not be fetched, on which others still wait."""

    async def sample(self, run_id: str, limit: int) -> list[Wanted]:
        """The newest requests of a run, without their places."""
