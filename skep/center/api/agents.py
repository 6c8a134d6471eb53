"""Agents, for people: who is there, how it is, and what it is told to do.

What a person wants is a fact of the store: every center acts by it within a second, and what
the agent itself must do is told again with every heartbeat until it says that it is done.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.api.agent_names import AGENT_NAMES, agent_named
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.center.services import Services
from skep.errors import Conflict, InvalidInput, NotFound, UnknownAgent
from skep.model.agent import REVOKED, AgentView, Order, Vitals, machine_of
from skep.model.bounds import PRINTABLE, SHORT_LIST, exact, is_printable
from skep.wire.messages import Command

#: Verb: (gets work, why not). Centers see to these alone.
STANDINGS = {
    "enable": (True, ""),
    "disable": (False, ""),
    "cordon": (False, "cordoned"),
    "drain": (False, "draining"),
}
#: What the agent itself has to do.
ORDERS = ("drain", "restart", "exit")
VERBS = (*STANDINGS, "restart", "exit", "wake", "revoke")
TEXT_LIMIT = 200
_RULES = {"maxLength": TEXT_LIMIT, "pattern": PRINTABLE}
LabelName = Annotated[str, Meta(extra_json_schema=exact(minLength=1, **_RULES))]
LabelText = Annotated[str, Meta(extra_json_schema=exact(**_RULES))]


class AgentLine(msgspec.Struct):
    """An agent, and whether this center thinks that it lives."""

    agent: AgentView
    alive: bool
    last_beat_age: float


class AgentDetail(msgspec.Struct):
    """One agent, with what it was told to do, newest first."""

    agent: AgentView
    alive: bool
    last_beat_age: float
    orders: list[Order]


class Agents(msgspec.Struct):
    """Every agent that ever registered."""

    items: list[AgentLine]


class Since(msgspec.Struct):
    """How far back, in seconds, and in how many points."""

    #: How far back, in seconds.
    seconds: Annotated[float, Meta(gt=0, le=604800)] = 3600.0
    #: Number of heartbeats at most, evenly thinned out.
    points: Annotated[int, Meta(ge=2, le=10000)] = 2000


class Beats(msgspec.Struct):
    """(moment, vitals), oldest first."""

    items: list[tuple[float, Vitals]]


class Labels(msgspec.Struct, forbid_unknown_fields=True):
    """Labels to set; null takes one away, also one that the agent brings itself."""

    labels: Annotated[dict[LabelName, LabelText | None], Meta(max_length=SHORT_LIST)]


async def list_agents(call: Call) -> Agents:
    """Who is there, by the center's clock."""
    return Agents([_line(call, view) for view in await call.services.roster.refresh()])


async def show_agent(call: Call) -> AgentDetail:
    """One agent and its orders."""
    agent = await agent_named(call, call.path["agent"])
    line = _line(call, await call.services.roster.look(agent))
    orders = await call.services.store.agents.orders(agent)
    return AgentDetail(line.agent, line.alive, line.last_beat_age, orders)


async def agent_vitals(call: Call) -> Beats:
    """Heartbeat history of an agent, for charts: evenly thinned out to `points`."""
    agent = await agent_named(call, call.path["agent"])
    since = call.services.clock.now() - call.query.seconds
    beats = await call.services.store.agents.vitals(agent, since)
    step = -(-len(beats) // call.query.points) or 1
    # From the newest backwards, so that the last point is the present.
    return Beats(beats[::-1][::step][::-1])


async def command_agent(call: Call) -> AgentLine:
    """enable, disable, cordon, drain, restart, exit, wake or revoke."""
    verb, services = call.path["verb"], call.services
    if verb not in VERBS:
        raise NotFound(f"{verb[:50]!r} is none of {', '.join(VERBS)}")
    agent = await agent_named(call, call.path["agent"])
    if verb in STANDINGS:
        enabled, aside = STANDINGS[verb]
        await services.roster.enable(agent, enabled, aside)
    if verb == "revoke":
        await _revoke(services, agent)
    if verb in ORDERS:
        order = await services.store.agents.order(agent, verb, services.clock.now())
        await services.hub.send(agent, Command(verb, order=order.no))
    elif verb in {"enable", "wake"}:
        await services.hub.send(agent, Command("wake"))
    return _line(call, await services.roster.look(agent))


async def _revoke(services: Services, agent: str) -> None:
    """End its credential. One of several processes has that of its machine, which ends for all
    of them. Raises Conflict when there is none to end."""
    tokens, roster = services.store.tokens, services.roster
    out = [agent]
    ended = await tokens.revoke(agent)
    machine = machine_of(agent)
    if not ended and machine != agent and (ended := await tokens.revoke(machine)):
        out = [one.id for one in await roster.refresh() if machine_of(one.id) == machine]
    services.auth.forget()
    view = roster.view(agent)
    its_own = bool(ended or (view and view.bound))
    for one in out:
        await roster.enable(one, False, REVOKED if its_own else "")
    if not its_own:
        raise Conflict(
            f"agent {agent} gets no work any more, but it has no credential of its own: it came"
            " with a token that others may have, too; `skep token ls` and `skep token revoke` end"
            " that one"
        )


async def label_agent(call: Call) -> AgentLine:
    """Set or take away labels."""
    agent, changes = await agent_named(call, call.path["agent"]), call.body.labels
    for text in [*changes, *(value for value in changes.values() if value is not None)]:
        if not is_printable(text) or len(text) > TEXT_LIMIT:
            raise InvalidInput(
                f"{text[:50]!r} in a label: use up to {TEXT_LIMIT} printable characters"
            )
    if "" in changes:
        raise InvalidInput("a label needs a name")
    await call.services.store.agents.label(agent, changes, call.services.clock.now())
    return _line(call, await call.services.roster.look(agent))


def _line(call: Call, view: AgentView) -> AgentLine:
    now = call.services.clock.now()
    alive_after = call.services.settings.center.alive_after
    return AgentLine(view, view.alive(now, alive_after), now - view.seen_at)


ENDPOINTS = (
    Endpoint(
        "GET", "/api/v1/agents", Role.VIEWER, list_agents, "List agents", gives=Agents, tag="agents"
    ),
    Endpoint(
        "GET",
        "/api/v1/agents/{agent}",
        Role.VIEWER,
        show_agent,
        "Show an agent and its orders",
        gives=AgentDetail,
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
    ),
    Endpoint(
        "GET",
        "/api/v1/agents/{agent}/vitals",
        Role.VIEWER,
        agent_vitals,
        "Heartbeat history of an agent",
        gives=Beats,
        asks=Since,
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
    ),
    Endpoint(
        "PUT",
        "/api/v1/agents/{agent}/labels",
        Role.ADMIN,
        label_agent,
        "Set labels of an agent",
        Labels,
        AgentLine,
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
    ),
    Endpoint(
        "POST",
        "/api/v1/agents/{agent}/{verb}",
        Role.ADMIN,
        command_agent,
        "Enable, disable, cordon, drain, restart, end, wake or revoke an agent",
        gives=AgentLine,
        errors=(InvalidInput, UnknownAgent, Conflict),
        tag="agents",
        parameters={**AGENT_NAMES, "verb": {"enum": list(VERBS)}},
        notes="drain, restart and exit are repeated until the agent has obeyed. Revoking one of"
        " several processes of a machine revokes all of them.",
    ),
)
