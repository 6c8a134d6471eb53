"""Agents, for people: who is there, how it is, and what it is told to do.

What a person wants is a fact of the store: every center acts by it within a second, and what
the agent itself must do is told again with every heartbeat until it says that it is done.
"""

from __future__ import annotations

from skep.center.api.agent_names import AGENT_NAMES, agent_named
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.center.services import Services
from skep.errors import Conflict, InvalidInput, NotFound, UnknownAgent
from skep.model.fleet.agent import REVOKED, AgentView, machine_of
from skep.model.message_bounds import is_printable
from skep.wire.api.agents import (
    COMMAND_AGENT,
    GET_AGENT,
    LIST_AGENT_HEARTBEATS,
    LIST_AGENTS,
    SET_AGENT_LABELS,
    TEXT_LIMIT,
    AgentDetail,
    AgentLine,
    Agents,
    Beats,
)
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


async def list_agents(call: Call) -> Agents:
    """Who is there, by the center's clock."""
    return Agents([_line(call, view) for view in await call.services.roster.refresh()])


async def show_agent(call: Call) -> AgentDetail:
    """One agent and its orders."""
    agent = await agent_named(call, call.path["agent"])
    line = _line(call, await call.services.roster.look(agent))
    orders = await call.services.store.agents.commands(agent)
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
        order = await services.store.agents.command(agent, verb, services.clock.now())
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
    Endpoint(LIST_AGENTS, Role.VIEWER, list_agents, "List agents", tag="agents"),
    Endpoint(
        GET_AGENT,
        Role.VIEWER,
        show_agent,
        "Show an agent and its orders",
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
    ),
    Endpoint(
        LIST_AGENT_HEARTBEATS,
        Role.VIEWER,
        agent_vitals,
        "Heartbeat history of an agent",
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
    ),
    Endpoint(
        SET_AGENT_LABELS,
        Role.ADMIN,
        label_agent,
        "Set labels of an agent",
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
    ),
    Endpoint(
        COMMAND_AGENT,
        Role.ADMIN,
        command_agent,
        "Enable, disable, cordon, drain, restart, end, wake or revoke an agent",
        errors=(InvalidInput, UnknownAgent, Conflict),
        tag="agents",
        parameters={**AGENT_NAMES, "verb": {"enum": list(VERBS)}},
        notes="drain, restart and exit are repeated until the agent has obeyed. Revoking one of"
        " several processes of a machine revokes all of them.",
    ),
)
