"""An agent as a word and as a sentence: its state, and why it has no work. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skep.model.fleet.agent import REVOKED, Vitals
from skep.wire.api.agents import AgentDetail, AgentLine

#: Points of a chart of heartbeats.
POINTS = 60


def agent_word(line: AgentLine | AgentDetail) -> str:
    """The word of the filter field `state`."""
    agent = line.agent
    if agent.aside == REVOKED:
        return REVOKED
    if not line.alive:
        return "dead"
    return "alive" if agent.enabled else agent.aside or "disabled"


def shown_word(line: AgentLine | AgentDetail) -> str:
    """The state to show. A dead agent is not a dead request: languages have two words."""
    word = agent_word(line)
    return "agent_dead" if word == "dead" else word


def idle_key(line: AgentLine | AgentDetail) -> str:
    """The key of the sentence that says why it has no work, or that it works."""
    word, vitals = agent_word(line), line.agent.vitals
    if word != "alive":
        return f"agent.idle_{word}"
    if vitals.active:
        return "agent.works"
    return "agent.idle_outbox" if vitals.outbox else "agent.idle_no_work"


def averaged(
    beats: Sequence[tuple[float, Vitals]], name: str, since: float, step: float
) -> list[float | None]:
    """One figure of the heartbeats as the means of equal periods; None = no heartbeat in it."""
    found: list[list[float]] = [[] for _ in range(POINTS)]
    for at, vitals in beats:
        place = int((at - since) / step)
        if 0 <= place < POINTS:
            found[place].append(float(getattr(vitals, name)))
    return [sum(values) / len(values) if values else None for values in found]
