"""The store's contract for placement. The rules of `store/ports` apply.

Run by centers only. A choice is stored before any agent is informed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from skep.model.fleet.placement import run_target
from skep.model.run import RunSettings
from skep.model.states import RunState


class Wanted(NamedTuple):
    """The facts about a request for the choice of its agent."""

    uri: str
    host: str
    session: str = ""
    #: The agent of its chain, or `>N`: the agent that fetches request N; None = any agent.
    place: str | None = None


class Placing(Protocol):
    """Chooses the agents of the requests of one run, as of now."""

    @property
    def by_session(self) -> bool:
        """Whether it needs sessions, which are in a request's arguments."""

    @property
    def chained(self) -> bool:
        """Whether it needs the agents of chains."""

    def target(self, wanted: Wanted) -> str | None:
        """The target of its block; None = the request is held back for now."""


class AllocationSlot(msgspec.Struct, frozen=True):
    """An agent that was chosen for a run."""

    agent: str
    slot: int
    since: float
    #: When it was replaced, and why; None = it belongs to the run.
    until: float | None = None
    why: str = ""


class Allocation(msgspec.Struct, frozen=True):
    """The agents that were chosen for a run, by its placement rule."""

    run: str
    number: int
    state: RunState
    settings: RunSettings
    at: float
    seats: list[AllocationSlot]
    released_at: float | None = None

    @property
    def target(self) -> str:
        """The target of blocks that any agent of the run may take."""
        return run_target(self.number)

    @property
    def agents(self) -> list[str]:
        """The current agents of the run, in their order."""
        return [seat.agent for seat in self.seats if seat.until is None]


class Allocations(Protocol):
    """Used by `placement`. A run without a placement rule has no allocation."""

    async def allocate(self, run_id: str, agents: Sequence[str], now: float) -> Allocation:
        """Store a choice. When the run has one already, that one is returned instead, and is open
        again if it was released.

        Raises UnknownRun.
        """

    async def get(self, run_id: str) -> Allocation | None:
        """Raises UnknownRun."""

    async def open(self) -> list[Allocation]:
        """Those that are not released, oldest first."""

    async def of_agent(self, agent: str, limit: int) -> list[Allocation]:
        """Those in which an agent has a slot, newest first."""

    async def ended(self, limit: int) -> list[Allocation]:
        """Open allocations of runs that have ended or failed, oldest first. A run that is continued
        gets the same agents again."""

    async def release(self, run_ids: Sequence[str], now: float) -> list[Allocation]:
        """Close the allocations of these runs, if they have ended. Returns those that this
        call closed: of several callers one gets each."""

    async def replace(self, run_id: str, gone: str, to: str, why: str, now: float) -> bool:
        """Another agent takes a slot; False when the slot no longer belongs to `gone`."""

    async def belonging(self, run_id: str, agent: str) -> int:
        """Number of open requests of chains that can go to no other agent."""

    async def targets(self) -> list[str]:
        """Targets of claimable blocks, without those that any agent may take."""

    async def unpack(self, targets: Sequence[str], now: float, limit: int) -> list[int]:
        """Take claimable blocks for these targets apart: they are FAILED, their requests
        DELAYED and due at once. Returns the blocks."""

    async def restart_chains(self, run_id: str, gone: str, to: str, now: float) -> int:
        """Restart an agent's chains on another agent: copies of their first requests belong to it
        and wait; open requests wait for the copies. Returns how many chains."""

    async def rejoin(self, run_id: str) -> list[int]:
        """Requests that waited for a first request go to the agent that fetched it; returns first
        requests that could not be fetched and on which others still wait."""

    async def sample(self, run_id: str, limit: int) -> list[Wanted]:
        """The newest requests of a run, without their places."""
