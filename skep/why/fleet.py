"""Explains whether any agent can do the work, from the current list of agents. Pure.

Reasons that stop everything (no live agent, a full disk, a bus that is down) are given here, and
come before the reasons of a single request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from skep.model.downloader_kinds import HTTP
from skep.model.fleet.agent import AgentView
from skep.model.fleet.placement import KIND, RUN, Placement, Verdict
from skep.model.fleet.strategy_traits import strategy_names
from skep.model.lane import Lane
from skep.model.run import RunSettings
from skep.model.wait_reasons import Reason
from skep.placement.eligibility import Moment, Need, explain, judge, shortfall
from skep.why.wording import counted, duration

_START = "skep agent --center URL"
#: Maximum agents that are named in a sentence.
SHOWN = 3


class Needs(msgspec.Struct, frozen=True):
    """The requirements for an agent to take the work."""

    need: Need = Need(Placement(), HTTP.name)
    #: The one agent that may take it; "" = any that fits.
    target: str = ""


def needs_of(
    settings: RunSettings, target: str = "", chosen: frozenset[str] | None = None
) -> Needs:
    """The requirements of the work of a run, in a block with this target; `chosen` are the agents
    of its allocation, None when it has none."""
    one = "" if target.startswith((KIND, RUN)) else target
    return Needs(Need(settings.placement, settings.downloader, chosen), one)


class Fleet(msgspec.Struct, frozen=True):
    """Agents, lanes and disk, as this center sees them now."""

    now: float
    alive_after: float
    agents: Sequence[AgentView]
    #: Requests in each lane and its limit; None when the bus does not answer.
    lanes: Mapping[Lane, tuple[int, int]] | None
    #: Why the bus does not answer.
    trouble: str = ""
    #: Why the center's disk is full; "" = it is not.
    full: str = ""

    def alive(self) -> list[AgentView]:
        return [view for view in self.agents if view.alive(self.now, self.alive_after)]

    def find(self, agent: str) -> AgentView | None:
        return next((view for view in self.agents if view.id == agent), None)


def obstacles(fleet: Fleet, needs: Needs) -> list[Reason]:
    """All reasons that stop such work."""
    return [*no_agent(fleet, needs), *surroundings(fleet)]


def too_few_agents(
    fleet: Fleet, settings: RunSettings, chosen: frozenset[str] | None
) -> list[Reason]:
    """Why a run that a job has begun does not get its agents; no reason when it has them."""
    placement = settings.placement
    if placement.plain or chosen:
        return []
    verdicts = explain(fleet.agents, needs_of(settings).need, Moment(fleet.now, fleet.alive_after))
    if sum(verdict.fits for verdict in verdicts) >= placement.wanted:
        return []
    return [
        Reason(
            "too_few_agents",
            f"it waits for its agents ({placement.in_words()}):"
            f" {shortfall(placement.wanted, verdicts)}",
            "start agents that fit, or cancel the run",
            do=("skep agents", _START),
            facts={"placement": placement.in_words(), "wanted": placement.wanted},
        )
    ]


def surroundings(fleet: Fleet) -> list[Reason]:
    """A full disk, a bus that is down."""
    reasons = []
    if fleet.full:
        reasons.append(_disk(fleet.full))
    if fleet.lanes is None:
        reasons.append(
            Reason(
                "bus_down",
                f"the lanes cannot be reached: {fleet.trouble}",
                "none; blocks are leased again when the bus answers, and none is lost",
                do=("skep doctor",),
                facts={"detail": fleet.trouble},
            )
        )
    return reasons


def _disk(trouble: str) -> Reason:
    return Reason(
        "disk_full",
        f"no requests are accepted or leased: {trouble}",
        "free space or fix the archive; work then continues automatically",
        do=("skep doctor",),
        facts={"detail": trouble},
    )


def no_agent(fleet: Fleet, needs: Needs) -> list[Reason]:
    """Why no agent can take it; no reason when one can."""
    missing = _not_installed(needs.need.placement.strategy)
    if needs.target:  # a block that was packed before goes to its agent; without it, no other does
        return [*absent, *missing] if (absent := _target(fleet, needs.target)) else []
    return [*missing, *_no_agent(fleet, needs)]


def _no_agent(fleet: Fleet, needs: Needs) -> list[Reason]:
    if not fleet.agents:
        return [
            Reason(
                "no_agent",
                "no agent has ever registered with this center",
                "start an agent",
                do=(_START,),
                facts={"agents": 0},
            )
        ]
    if needs.need.chosen is not None:
        return _chosen_away(fleet, needs.need, needs.need.chosen)
    return _none_of_all(fleet, needs.need)


def _not_installed(strategy: str) -> list[Reason]:
    if strategy in strategy_names():
        return []
    return [
        Reason(
            "no_agent_fits",
            f"the placement strategy {strategy} is not installed at this center",
            "it continues when a center has the package of the strategy",
            do=("skep doctor",),
            facts={"placement": strategy},
        )
    ]


def _chosen_away(fleet: Fleet, need: Need, chosen: frozenset[str]) -> list[Reason]:
    """Only the chosen agents of a run may work for it, except when chains restart."""
    known = [view for view in fleet.alive() if view.id in chosen]
    if any(view.enabled or view.cordoned for view in known):
        return []
    if need.placement.traits.chains and need.placement.when_gone == "restart":
        return _none_of_all(fleet, msgspec.structs.replace(need, chosen=None))
    shown = ", ".join(_chosen(fleet, name) for name in sorted(chosen)[:SHOWN])
    more = f", and {len(chosen) - SHOWN} more" if len(chosen) > SHOWN else ""
    return [
        Reason(
            "no_agent_fits",
            f"none of the agents chosen for this run is available: {shown or 'none'}{more}",
            "it continues when one of them returns; other agents do not get its work",
            do=(*(f"skep agents enable {view.id}" for view in known[:SHOWN]), "skep agents"),
            facts={"placement": need.placement.in_words(), "chosen": sorted(chosen)},
        )
    ]


def _none_of_all(fleet: Fleet, need: Need) -> list[Reason]:
    alive = fleet.alive()
    if not alive:
        return [_all_silent(fleet)]
    enabled = [view for view in alive if view.enabled]
    if not enabled:
        return [_all_disabled(alive)]
    return _unfit(fleet, enabled, need)


def _unfit(fleet: Fleet, enabled: Sequence[AgentView], need: Need) -> list[Reason]:
    moment = Moment(fleet.now, fleet.alive_after)
    verdicts = [judge(view, need, moment) for view in enabled]
    if any(verdict.fits for verdict in verdicts):
        return []
    if all(verdict.rule == "capability" for verdict in verdicts):
        return [_none_offers(fleet, enabled, need.kind)]
    return [_none_fits(verdicts, need)]


def _all_silent(fleet: Fleet) -> Reason:
    last = max(fleet.agents, key=lambda view: view.seen_at)
    ago = fleet.now - last.seen_at
    return Reason(
        "no_live_agent",
        f"no live agent: {counted(len(fleet.agents), 'agent')} registered, the last heartbeat"
        f" came {duration(ago)} ago from {last.id}",
        "start an agent",
        do=("skep agents", _START),
        facts={"agents": len(fleet.agents), "last_agent": last.id, "last_seen_at": last.seen_at},
    )


def _all_disabled(alive: Sequence[AgentView]) -> Reason:
    names = sorted(view.id for view in alive)
    which = "the only live agent is" if len(names) == 1 else f"all {len(names)} live agents are"
    asides = sorted({view.aside or "disabled" for view in alive})
    return Reason(
        "agents_disabled",
        f"{which} {' or '.join(asides)}",
        "enable an agent",
        do=tuple(f"skep agents enable {name}" for name in names[:3]),
        facts={"agents": names},
    )


def _none_fits(verdicts: Sequence[Verdict], need: Need) -> Reason:
    failed = {verdict.rule for verdict in verdicts}
    wanted = [words for rule, words in _requirements(need) if rule in failed]
    others = "; ".join(f"{one.agent}: {one.detail}" for one in verdicts[:SHOWN])
    more = f"; and {len(verdicts) - SHOWN} more" if len(verdicts) > SHOWN else ""
    return Reason(
        "no_agent_fits",
        f"no live agent {' and '.join(wanted) or 'fits'} ({others}{more})",
        "start an agent that fits",
        do=("skep agents", _START),
        facts={
            "placement": need.placement.in_words(),
            "agents": {one.agent: one.rule for one in verdicts[:100]},
        },
    )


def _requirements(need: Need) -> Iterator[tuple[str, str]]:
    """(rule, words) for every requirement of a run."""
    asked = need.placement
    yield "capability", f"with downloader {need.kind}"
    yield "group", f"in group {asked.group}"
    yield "os", f"on {asked.os}"
    labels = ", ".join(f"{name}={value}" for name, value in sorted(asked.labels.items()))
    yield "labels", f"with label {labels}"
    yield "memory", f"with {asked.memory} MB of free memory"


def _chosen(fleet: Fleet, name: str) -> str:
    view = fleet.find(name)
    if view is None:
        return name
    off = "" if view.enabled else f", {view.aside or 'disabled'}"
    return f"{name}, last heartbeat {duration(fleet.now - view.seen_at)} ago{off}"


def _none_offers(fleet: Fleet, enabled: Sequence[AgentView], kind: str) -> Reason:
    offered = sorted({name for view in enabled for name in view.registration.kinds})
    ever = any(kind in view.registration.kinds for view in fleet.agents)
    never = "" if ever else "; no agent ever did, so the agent that takes it will refuse it"
    return Reason(
        "no_agent_offers",
        f"no live agent offers downloader {kind}: {counted(len(enabled), 'agent')} available,"
        f" with {', '.join(offered) or 'none at all'}{never}",
        f"start an agent that offers {kind}",
        do=("skep agents", _START),
        facts={"downloader": kind, "offered": offered, "agents": len(enabled)},
    )


def _target(fleet: Fleet, agent: str) -> list[Reason]:
    view = fleet.find(agent)
    facts = {"agent": agent}
    frees = "it continues when that agent returns"
    if view is None:
        text = f"only agent {agent} may take it, and no such agent is registered"
        return [Reason("target_agent", text, frees, do=(_START,), facts=facts)]
    if not view.alive(fleet.now, fleet.alive_after):
        ago = duration(fleet.now - view.seen_at)
        text = f"only agent {agent} may take it, and its last heartbeat was {ago} ago"
        return [Reason("target_agent", text, frees, do=("skep agents",), facts=facts)]
    if not view.enabled and not view.cordoned:
        text = f"only agent {agent} may take it, and it is {view.aside or 'disabled'}"
        do = (f"skep agents enable {agent}",)
        return [Reason("target_agent", text, frees, do=do, facts=facts)]
    return []
