"""Agents, for users: which agents there are, their state, and commands to them.

A command is a row in the store: every center applies it within a second. What the agent itself
must do is sent with every heartbeat reply until the agent acknowledges it.
"""

from __future__ import annotations

from skep.center.api.agent_names import AGENT_NAMES, agent_named
from skep.center.api.listing import listed_in_memory
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.scoping import agents_in_scope
from skep.center.services import Services
from skep.errors import Conflict, InvalidInput, NotFound, UnknownAgent
from skep.model.filter.facts import agent_facts
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

#: Verb: (gets work, why not). Centers carry these out; the agent is not involved.
STANDINGS = {
    "enable": (True, ""),
    "disable": (False, ""),
    "cordon": (False, "cordoned"),
    "drain": (False, "draining"),
}
#: Commands that the agent itself carries out.
ORDERS = ("drain", "restart", "exit")
VERBS = (*STANDINGS, "restart", "exit", "wake", "revoke")


async def list_agents(call: Call) -> Agents:
    """All agents; ages are by the center's clock."""
    views = agents_in_scope(call, await call.services.roster.refresh())
    if call.query.filter is None:
        return Agents([_line(call, view) for view in views])
    now, alive_after = call.services.clock.now(), call.services.settings.center.alive_after
    found, more = listed_in_memory(
        call,
        "agents",
        views,
        lambda view: view.id,
        lambda view: agent_facts(view, now, alive_after),
    )
    return Agents([_line(call, view) for view in found], **more)


async def show_agent(call: Call) -> AgentDetail:
    """One agent and its commands."""
    agent = await agent_named(call, call.path["agent"])
    line = _line(call, await call.services.roster.look(agent))
    orders = await call.services.store.agents.commands(agent)
    return AgentDetail(line.agent, line.alive, line.last_beat_age, orders)


async def agent_vitals(call: Call) -> Beats:
    """Heartbeat history of an agent, for charts: evenly reduced to `points`."""
    agent = await agent_named(call, call.path["agent"])
    since = call.services.clock.now() - call.query.seconds
    beats = await call.services.store.agents.vitals(agent, since)
    step = -(-len(beats) // call.query.points) or 1
    # Backwards from the newest, so that the last point is the newest heartbeat.
    return Beats(beats[::-1][::step][::-1])


async def command_agent(call: Call) -> AgentLine:
    """enable, disable, cordon, drain, restart, exit, wake or revoke."""
    verb, services = call.path["verb"], call.services
    if verb not in VERBS:
        raise NotFound(f"{verb[:50]!r} is not a command for agents; use one of {', '.join(VERBS)}")
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
    """Revoke the agent's credential. The processes of one machine share a credential: it is
    revoked for all of them. Raises Conflict when the agent has none."""
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
            f"agent {agent} gets no more work, but it has no own credential to revoke: it uses a"
            " token that other agents may also use; find it with `skep token ls` and revoke it with"
            " `skep token revoke`"
        )


async def label_agent(call: Call) -> AgentLine:
    """Set or remove labels."""
    agent, changes = await agent_named(call, call.path["agent"]), call.body.labels
    for text in [*changes, *(value for value in changes.values() if value is not None)]:
        if not is_printable(text) or len(text) > TEXT_LIMIT:
            raise InvalidInput(
                f"label {text[:50]!r} is not valid; use up to {TEXT_LIMIT} printable characters"
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
        LIST_AGENTS,
        Role.VIEWER,
        list_agents,
        "List agents",
        errors=(InvalidInput,),
        tag="agents",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        GET_AGENT,
        Role.VIEWER,
        show_agent,
        "Show an agent and its commands",
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
        scoped=Scoping.AGENT,
    ),
    Endpoint(
        LIST_AGENT_HEARTBEATS,
        Role.VIEWER,
        agent_vitals,
        "Heartbeat history of an agent",
        errors=(InvalidInput, UnknownAgent),
        tag="agents",
        parameters=AGENT_NAMES,
        scoped=Scoping.AGENT,
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
        notes="drain, restart and exit are repeated until the agent has acknowledged them. Revoking"
        " one of several processes of a machine revokes all of them.",
        scoped=Scoping.AGENT,
    ),
)
