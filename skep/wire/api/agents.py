"""Agents: types and routes for users.

The messages of agents to a center are in `wire/messages.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.fleet.agent import AgentView, Order, Vitals
from skep.model.message_bounds import PRINTABLE, SHORT_LIST, FilterText, exact
from skep.wire.api.caller import Resource
from skep.wire.api.listing import Listed, PageKey
from skep.wire.api.route import Route

TEXT_LIMIT = 200
_RULES = {"maxLength": TEXT_LIMIT, "pattern": PRINTABLE}
LabelName = Annotated[str, Meta(extra_json_schema=exact(minLength=1, **_RULES))]
LabelText = Annotated[str, Meta(extra_json_schema=exact(**_RULES))]
AgentVerb = Literal["enable", "disable", "cordon", "drain", "restart", "exit", "wake", "revoke"]


class AgentLine(msgspec.Struct):
    """An agent, and whether this center considers it alive."""

    agent: AgentView
    alive: bool
    last_beat_age: float


class AgentDetail(msgspec.Struct):
    """One agent with its commands, newest first."""

    agent: AgentView
    alive: bool
    last_beat_age: float
    orders: list[Order]


class AgentPage(msgspec.Struct):
    """Which agents to list; without a filter all of them."""

    #: A filter, see the page on filters. With it, even an empty one, pages follow `page`.
    filter: FilterText | None = None
    #: `next_page` of the last answer; empty = the first page.
    page: PageKey = ""
    #: Maximum number of agents, with a filter.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class Agents(Listed):
    """Every agent that ever registered; with a filter sorted by id, one page."""

    items: list[AgentLine]


class Since(msgspec.Struct):
    """The period in seconds, and the maximum number of points."""

    #: Length of the period until now, in seconds.
    seconds: Annotated[float, Meta(gt=0, le=604800)] = 3600.0
    #: Maximum number of heartbeats, evenly sampled.
    points: Annotated[int, Meta(ge=2, le=10000)] = 2000


class Beats(msgspec.Struct):
    """(time, vitals), oldest first."""

    items: list[tuple[float, Vitals]]


class Labels(msgspec.Struct, forbid_unknown_fields=True):
    """Labels to set; null removes one, also one of the agent's own."""

    labels: Annotated[dict[LabelName, LabelText | None], Meta(max_length=SHORT_LIST)]


LIST_AGENTS = Route("list_agents", "GET", "/api/v1/agents", Agents, asks=AgentPage)
GET_AGENT = Route("get_agent", "GET", "/api/v1/agents/{agent}", AgentDetail)
LIST_AGENT_HEARTBEATS = Route(
    "list_agent_heartbeats", "GET", "/api/v1/agents/{agent}/vitals", Beats, asks=Since
)
SET_AGENT_LABELS = Route(
    "set_agent_labels",
    "PUT",
    "/api/v1/agents/{agent}/labels",
    AgentLine,
    takes=Labels,
    example={"labels": {"site": "berlin", "old": None}},
)
COMMAND_AGENT = Route("command_agent", "POST", "/api/v1/agents/{agent}/{verb}", AgentLine)


class AgentsClient(Resource):
    """Calls the routes of this file."""

    async def list(self, asks: AgentPage | None = None) -> Agents:
        """List agents."""
        return await self._caller.call(LIST_AGENTS, asks=asks)

    async def show(self, agent: str) -> AgentDetail:
        """Show an agent and its orders."""
        return await self._caller.call(GET_AGENT, agent)

    async def vitals(self, agent: str, asks: Since | None = None) -> Beats:
        """Heartbeat history of an agent."""
        return await self._caller.call(LIST_AGENT_HEARTBEATS, agent, asks=asks)

    async def label(self, agent: str, body: Labels) -> AgentLine:
        """Set labels of an agent."""
        return await self._caller.call(SET_AGENT_LABELS, agent, body=body)

    async def command(self, agent: str, verb: AgentVerb) -> AgentLine:
        """Enable, disable, cordon, drain, restart, end, wake or revoke an agent."""
        return await self._caller.call(COMMAND_AGENT, agent, verb)
