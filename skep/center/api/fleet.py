"""Agents, lanes, alerts and the ledger over all: the state of the whole."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from skep.center.api.names import AGENT_IDS, run_name
from skep.center.auth import Role, check_agent_id
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput, NotFound, UnknownAgent, UnknownRun
from skep.lanes.dispatch import lane_limits
from skep.model.agent import AgentView, Vitals
from skep.model.lane import Lane
from skep.model.ledger import Ledger
from skep.wire.messages import Command

COMMANDS = ("enable", "disable", "exit", "wake")


class AgentLine(msgspec.Struct):
    """An agent, and whether this center thinks that it lives."""

    agent: AgentView
    alive: bool
    last_beat_age: float


class Agents(msgspec.Struct):
    """Every agent that ever registered."""

    items: list[AgentLine]


class LaneLine(msgspec.Struct):
    """Requests in a lane and its bound."""

    lane: str
    requests: int
    limit: int


class LanesView(msgspec.Struct):
    """All lanes, first drained first."""

    items: list[LaneLine]


class Alerts(msgspec.Struct):
    """Newest first."""

    items: list[dict[str, Any]]


class LedgerView(msgspec.Struct):
    """The equation: accepted = the sum of all states."""

    ledger: Ledger
    total: int
    unaccounted: int
    line: str


class WhichLedger(msgspec.Struct):
    """`audit=true` counts rows instead of reading the running counts: slow and independent."""

    audit: bool = False
    run: str | None = None


class Since(msgspec.Struct):
    """How far back, in seconds."""

    seconds: Annotated[float, Meta(gt=0, le=604800)] = 3600.0


class Beats(msgspec.Struct):
    """(moment, vitals), oldest first."""

    items: list[tuple[float, Vitals]]


class AgentToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token that lets one agent, or with "" any agent, talk to the centers."""

    agent: str = ""


class IssuedToken(msgspec.Struct):
    """Shown once."""

    token: str


async def ledger(call: Call) -> LedgerView:
    """Over all runs or for one."""
    query: WhichLedger = call.query
    ledgers = call.services.store.ledgers
    run = None if query.run is None else run_name(query.run)
    found = await (ledgers.audit(run) if query.audit else ledgers.read(run))
    return LedgerView(found, found.total, found.unaccounted, found.line())


async def list_agents(call: Call) -> Agents:
    """Who is there, by the center's clock."""
    now = call.services.clock.now()
    alive_after = call.services.settings.center.alive_after
    views = await call.services.roster.refresh()
    return Agents([AgentLine(v, v.alive(now, alive_after), now - v.seen_at) for v in views])


async def agent_vitals(call: Call) -> Beats:
    """Heartbeat history of an agent, for charts."""
    check_agent_id(call.path["agent"])
    since = call.services.clock.now() - call.query.seconds
    return Beats(await call.services.store.agents.vitals(call.path["agent"], since))


async def command_agent(call: Call) -> AgentLine:
    """enable, disable, exit or wake."""
    agent, verb = call.path["agent"], call.path["verb"]
    check_agent_id(agent)
    if verb not in COMMANDS:
        raise NotFound(f"{verb[:50]!r} is none of {', '.join(COMMANDS)}")
    services = call.services
    if verb in {"enable", "disable"}:
        await services.roster.enable(agent, enabled=verb == "enable")
    views = {view.id: view for view in await services.roster.refresh()}
    if agent not in views:
        raise UnknownAgent(f"there is no agent {agent!r}")
    if verb in {"exit", "wake"}:
        await services.hub.send(agent, Command(verb))
    now = services.clock.now()
    view = views[agent]
    alive = view.alive(now, services.settings.center.alive_after)
    return AgentLine(view, alive, now - view.seen_at)


async def issue_agent_token(call: Call) -> IssuedToken:
    """A new agent's token; only its digest is kept."""
    message: AgentToken = call.body
    if message.agent:
        check_agent_id(message.agent)
    return IssuedToken(await call.services.auth.issue(Role.AGENT, message.agent))


async def lanes(call: Call) -> LanesView:
    """How full the lanes are."""
    sizes = await call.services.bus.lanes.sizes()
    limits = lane_limits(call.services.settings.lanes)
    return LanesView([LaneLine(lane.label, sizes.get(lane, 0), limits[lane]) for lane in Lane])


async def alerts(call: Call) -> Alerts:
    """What a person should look at."""
    return Alerts(await call.services.store.alerts.recent(100))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/ledger",
        Role.VIEWER,
        ledger,
        "The ledger",
        gives=LedgerView,
        asks=WhichLedger,
        errors=(UnknownRun,),
    ),
    Endpoint("GET", "/api/v1/lanes", Role.VIEWER, lanes, "The lanes", gives=LanesView),
    Endpoint("GET", "/api/v1/alerts", Role.VIEWER, alerts, "Alerts", gives=Alerts),
    Endpoint(
        "GET", "/api/v1/agents", Role.VIEWER, list_agents, "List agents", gives=Agents, tag="agents"
    ),
    Endpoint(
        "GET",
        "/api/v1/agents/{agent}/vitals",
        Role.VIEWER,
        agent_vitals,
        "Heartbeat history of an agent",
        gives=Beats,
        asks=Since,
        tag="agents",
        parameters=AGENT_IDS,
    ),
    Endpoint(
        "POST",
        "/api/v1/agents/{agent}/{verb}",
        Role.ADMIN,
        command_agent,
        "Enable, disable, wake or end an agent",
        gives=AgentLine,
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters={**AGENT_IDS, "verb": {"enum": list(COMMANDS)}},
    ),
    Endpoint(
        "POST",
        "/api/v1/agent-tokens",
        Role.ADMIN,
        issue_agent_token,
        "Make a token for an agent",
        AgentToken,
        IssuedToken,
        status=201,
        tag="agents",
    ),
)
