"""The agents of a run, and what would move if agents left or joined: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.fleet.placement import Placement, Preview, Verdict
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route


class SeatLine(msgspec.Struct):
    """An agent that was chosen for a run."""

    agent: str
    #: present, cordoned (it continues to work for this run), draining, disabled, revoked, away (no
    #: heartbeat) or given up.
    state: str
    since: float
    until: float | None = None
    why: str = ""


class PlacementView(msgspec.Struct):
    """A run's placement: its rule, the chosen agents, and what each agent lacks."""

    run: str
    placement: Placement
    words: str
    agents: list[SeatLine]
    #: Each agent, with the first rule that it does not meet; `rule` is "" when it may take work.
    verdicts: list[Verdict]
    allocated_at: float | None = None
    released_at: float | None = None


class AgentChange(msgspec.Struct):
    """Agents, by id or by name, separated by commas, that would leave or join; a run, or none for
    all keys."""

    #: Ids or names of agents that would leave, separated by commas.
    remove: Annotated[str, Meta(max_length=2000)] = ""
    #: Ids or names of agents that would join, separated by commas.
    add: Annotated[str, Meta(max_length=2000)] = ""
    #: Only keys of this run; empty = all runs.
    run: Annotated[str, Meta(max_length=64)] = ""


class RunEffect(msgspec.Struct):
    """The effect on a run that has chosen its agents."""

    run: str
    placement: str
    effect: str


class PreviewView(msgspec.Struct):
    """What would move in hashed placement, and what would happen in the others."""

    hashed: Preview
    runs: list[RunEffect]
    #: The keys: of a run, or synthetic.
    of: str
    #: Agents among those that would leave or join that do not affect the keys, and why.
    notes: list[str]


class AllocationLine(msgspec.Struct):
    """A run that an agent works for."""

    run: str
    state: str
    placement: str
    since: float
    until: float | None = None


class AllocationsOf(msgspec.Struct):
    """Newest first."""

    items: list[AllocationLine]


GET_RUN_PLACEMENT = Route("get_run_placement", "GET", "/api/v1/runs/{run}/placement", PlacementView)
PREVIEW_PLACEMENT = Route(
    "preview_placement",
    "GET",
    "/api/v1/placement/preview",
    PreviewView,
    asks=AgentChange,
    query_example={"add": "cellar"},
)
LIST_AGENT_ALLOCATIONS = Route(
    "list_agent_allocations", "GET", "/api/v1/agents/{agent}/allocations", AllocationsOf
)


class PlacementClient(Resource):
    """Calls the routes of this file."""

    async def of_run(self, run: str) -> PlacementView:
        """Show who may work for a run, and why others may not."""
        return await self._caller.call(GET_RUN_PLACEMENT, run)

    async def preview(self, asks: AgentChange | None = None) -> PreviewView:
        """Show what would move if agents left or came."""
        return await self._caller.call(PREVIEW_PLACEMENT, asks=asks)

    async def of_agent(self, agent: str) -> AllocationsOf:
        """List the runs that an agent was chosen for."""
        return await self._caller.call(LIST_AGENT_ALLOCATIONS, agent)
