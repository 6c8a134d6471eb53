"""Requests of a chained run that only one agent may take, or that wait for their chain to
begin again. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from skep.model.fleet.placement import Placement
from skep.model.wait_reasons import Reason
from skep.store.ports.waits import ChainFacts
from skep.why.fleet import Fleet
from skep.why.wording import counted, duration


def chain_of_request(chain: ChainFacts, run: str, asked: Placement, fleet: Fleet) -> list[Reason]:
    """Nothing while its agent can take it."""
    if chain.first is not None:
        return [_begins_again(chain, chain.first)]
    trouble = absence(fleet, chain.agent)
    if not trouble:
        return []
    text = f"it belongs to agent {chain.agent}, which fetched the page it was found on; {trouble}"
    return [_held(text, run, chain.agent, asked, 1)]


def _begins_again(chain: ChainFacts, first: int) -> Reason:
    return Reason(
        "chain_restarts",
        f"its chain begins again: it waits for request {first}, which agent {chain.agent} is to"
        " fetch",
        "it goes to that agent when the request is done; if that fails, the run stops",
        do=(f"skep why request:{first}",),
        facts={"first": first, "agent": chain.agent},
    )


def chains_of_run(
    belonging: Mapping[str, int], run: str, asked: Placement, fleet: Fleet
) -> list[Reason]:
    """Of a run: agents that are not there, with how many requests belong to each."""
    reasons = []
    for agent, count in sorted(belonging.items()):
        trouble = absence(fleet, agent)
        if trouble and count:
            some = counted(count, "open request")
            verb = "belongs" if count == 1 else "belong"
            text = f"{some} {verb} to agent {agent}; {trouble}"
            reasons.append(_held(text, run, agent, asked, count))
    return reasons


def absence(fleet: Fleet, agent: str) -> str:
    """Why an agent cannot take what is its own; "" when it can."""
    view = fleet.find(agent)
    if view is None:
        return "no such agent is registered"
    if not view.alive(fleet.now, fleet.alive_after):
        return f"it was last heard {duration(fleet.now - view.seen_at)} ago"
    if not view.enabled and not view.cordoned:
        return f"it is {view.aside or 'disabled'}"
    return ""


def _held(text: str, run: str, agent: str, asked: Placement, count: int) -> Reason:
    then = {
        "stop": "the run stops, as it was told to, unless the agent is back at once",
        "wait": f"the agent's return; after {asked.patience:g} s the run stops",
        "restart": "its chain begins again on another agent; when none can be had for"
        f" {asked.patience:g} s, the run stops",
    }
    return Reason(
        "chain_held",
        text,
        then[asked.when_gone],
        do=(f"skep placement show {run}", f"skep agents show {agent}"),
        facts={"agent": agent, "requests": count, "when_gone": asked.when_gone},
    )
