"""Explains requests of a chained run that only one agent may take, or whose chain restarts.
Pure."""

from __future__ import annotations

from collections.abc import Mapping

from skep.model.fleet.placement import Placement
from skep.model.wait_reasons import Reason
from skep.store.ports.waits import ChainFacts
from skep.why.fleet import Fleet
from skep.why.wording import counted, duration


def chain_of_request(chain: ChainFacts, run: str, asked: Placement, fleet: Fleet) -> list[Reason]:
    """No reason while its agent can take it."""
    if chain.first is not None:
        return [_begins_again(chain, chain.first)]
    trouble = absence(fleet, chain.agent)
    if not trouble:
        return []
    text = f"it belongs to agent {chain.agent}, which fetched the page that links to it; {trouble}"
    return [_held(text, run, chain.agent, asked, 1)]


def _begins_again(chain: ChainFacts, first: int) -> Reason:
    return Reason(
        "chain_restarts",
        f"its chain restarts: it waits for request {first}, which agent {chain.agent} is to fetch",
        "none; it goes to that agent when the request is done; if the request fails, the run stops",
        do=(f"skep why request:{first}",),
        facts={"first": first, "agent": chain.agent},
    )


def chains_of_run(
    belonging: Mapping[str, int], run: str, asked: Placement, fleet: Fleet
) -> list[Reason]:
    """Of a run: agents that are not available, with the number of requests of each."""
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
    """Why an agent cannot take its requests; "" when it can."""
    view = fleet.find(agent)
    if view is None:
        return "no such agent is registered"
    if not view.alive(fleet.now, fleet.alive_after):
        return f"its last heartbeat was {duration(fleet.now - view.seen_at)} ago"
    if not view.enabled and not view.cordoned:
        return f"it is {view.aside or 'disabled'}"
    return ""


def _held(text: str, run: str, agent: str, asked: Placement, count: int) -> Reason:
    then = {
        "stop": "the run stops unless the agent returns at once",
        "wait": f"it continues when the agent returns; after {asked.patience:g} s the run stops",
        "restart": "its chain restarts on another agent; when none is available for"
        f" {asked.patience:g} s, the run stops",
    }
    return Reason(
        "chain_held",
        text,
        then[asked.when_gone],
        do=(f"skep placement show {run}", f"skep agents show {agent}"),
        facts={"agent": agent, "requests": count, "when_gone": asked.when_gone},
    )
