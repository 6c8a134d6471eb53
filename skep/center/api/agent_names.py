"""Resolves the name of an agent: the agent with that id, else the only agent with that name.

Every route for users resolves names here, so that the command line and scripts name agents
alike. Agents always identify themselves by id and never use this. Centers only.
"""

from __future__ import annotations

import re
from typing import Any

from skep.center.http.authentication import check_agent_id
from skep.center.http.endpoint import Call
from skep.errors import InvalidInput, UnknownAgent
from skep.model.fleet.agent import AgentView

#: Maximum length of a name in a registration.
NAME_LIMIT = 200
#: Number of agents with the same name that an error lists.
LISTED = 10
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

#: The schema of the path parameter, for the API's description.
AGENT_NAMES: dict[str, Any] = {
    "agent": {
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_LIMIT,
        "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
        "description": "The agent's id, or its name while no other agent has that name."
        " An id takes precedence over a name.",
    }
}


async def agent_named(call: Call, text: str) -> str:
    """The id. Raises UnknownAgent when no agent has that id or name, and InvalidInput when
    several have that name."""
    if agent := await _found(call, text):
        return agent
    raise unknown_agent(text)


def unknown_agent(text: str) -> UnknownAgent:
    """The error for a text that is neither an id nor a name."""
    return UnknownAgent(f"no agent has the id or the name {text!r}; `skep agents` lists them")


async def agent_or_new(call: Call, text: str) -> str:
    """The id; for an agent that is not registered yet, the text itself. Raises InvalidInput when
    the text cannot be an id, or is the name of several agents."""
    if agent := await _found(call, text):
        return agent
    check_agent_id(text)
    return text


async def _found(call: Call, text: str) -> str:
    """The id; "" when no agent has that id or name."""
    if not 0 < len(text) <= NAME_LIMIT or _CONTROL.search(text):
        raise InvalidInput(
            f"agent {text[:50]!r} is not valid; use 1 to {NAME_LIMIT} printable characters"
        )
    roster = call.services.roster
    if _can_be_id(text) and await roster.known(text):
        return text
    found = [view for view in await roster.refresh() if view.registration.name == text]
    if len(found) > 1:
        raise InvalidInput(_several(call, text, found))
    return found[0].id if found else ""


def _can_be_id(text: str) -> bool:
    try:
        check_agent_id(text)
    except InvalidInput:
        return False
    return True


def _several(call: Call, name: str, views: list[AgentView]) -> str:
    """Live agents first: the others are often earlier registrations of the same machine."""
    now, alive_after = call.services.clock.now(), call.services.roster.alive_after
    states = {view.id: view.alive(now, alive_after) for view in views}
    ids = sorted(states, key=lambda agent: (not states[agent], agent))
    shown = [f"{agent} ({'alive' if states[agent] else 'silent'})" for agent in ids[:LISTED]]
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{len(ids)} agents have the name {name!r}; use the id of one of them: " + (
        ", ".join(shown) + more
    )
