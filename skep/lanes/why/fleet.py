"""Is there anybody who could do the work? Pure: from the roster as it stands, to reasons.

What keeps everything waiting (no live agent, a full disk, a bus that is away) is said here,
and comes before whatever a single request waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from skep.lanes.why.words import counted, duration
from skep.model.agent import AgentView
from skep.model.lane import Lane
from skep.model.placement import KIND, RUN
from skep.model.run import RunSettings
from skep.model.why import Reason

_START = "skep agent --center URL"


class Needs(msgspec.Struct, frozen=True):
    """What an agent must be to take the work; "" and nothing = anything will do."""

    downloader: str = ""
    #: The one agent that may take it.
    target: str = ""
    group: str = ""
    os: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


def needs_of(settings: RunSettings, target: str = "") -> Needs:
    """What the work of a run, in a block with this target, asks of an agent."""
    one = "" if target.startswith((KIND, RUN)) else target
    return Needs(settings.downloader, one)


class Fleet(msgspec.Struct, frozen=True):
    """Agents, lanes and disk, as this center sees them now."""

    now: float
    alive_after: float
    agents: Sequence[AgentView]
    #: Requests in each lane and its bound; None when the bus does not answer.
    lanes: Mapping[Lane, tuple[int, int]] | None
    #: Why the bus does not answer.
    trouble: str = ""
    #: Why the center's disk takes no more; "" = there is room.
    full: str = ""

    def alive(self) -> list[AgentView]:
        return [view for view in self.agents if view.alive(self.now, self.alive_after)]

    def find(self, agent: str) -> AgentView | None:
        return next((view for view in self.agents if view.id == agent), None)


def obstacles(fleet: Fleet, needs: Needs) -> list[Reason]:
    """Everything that keeps any such work from being done."""
    return [*nobody(fleet, needs), *surroundings(fleet)]


def surroundings(fleet: Fleet) -> list[Reason]:
    """A disk that is full, a bus that is away."""
    reasons = []
    if fleet.full:
        reasons.append(_disk(fleet.full))
    if fleet.lanes is None:
        reasons.append(
            Reason(
                "bus_down",
                f"the lanes cannot be reached: {fleet.trouble}",
                "blocks are handed out again when the bus answers; none is lost",
                do=("skep doctor",),
                facts={"detail": fleet.trouble},
            )
        )
    return reasons


def _disk(trouble: str) -> Reason:
    return Reason(
        "disk_full",
        f"the disk is full, and nothing is taken or leased: {trouble}",
        "everything goes on by itself when there is room",
        do=("skep doctor",),
        facts={"detail": trouble},
    )


def nobody(fleet: Fleet, needs: Needs) -> list[Reason]:
    """Why no agent can take it; nothing when one can."""
    if needs.target:
        return _target(fleet, needs.target)
    if not fleet.agents:
        return [
            Reason(
                "no_agent",
                "no agent has ever registered with this center",
                "it goes on when an agent comes",
                do=(_START,),
                facts={"agents": 0},
            )
        ]
    alive = fleet.alive()
    if not alive:
        return [_all_silent(fleet)]
    enabled = [view for view in alive if view.enabled]
    if not enabled:
        return [_all_disabled(alive)]
    fitting = [view for view in enabled if not _lacks(view, needs)]
    if not fitting:
        return [_none_fits(enabled, needs)]
    return _kinds(fleet, fitting, needs)


def _all_silent(fleet: Fleet) -> Reason:
    last = max(fleet.agents, key=lambda view: view.seen_at)
    ago = fleet.now - last.seen_at
    return Reason(
        "no_live_agent",
        f"no live agent: {counted(len(fleet.agents), 'agent')} registered, the last sign of life"
        f" came {duration(ago)} ago from {last.id}",
        "it goes on when an agent comes back",
        do=("skep agents", _START),
        facts={"agents": len(fleet.agents), "last_agent": last.id, "last_seen_at": last.seen_at},
    )


def _all_disabled(alive: Sequence[AgentView]) -> Reason:
    names = sorted(view.id for view in alive)
    which = "the only live agent is" if len(names) == 1 else f"all {len(names)} live agents are"
    return Reason(
        "agents_disabled",
        f"{which} disabled",
        "it goes on when one is enabled",
        do=tuple(f"skep agents enable {name}" for name in names[:3]),
        facts={"agents": names},
    )


def _lacks(view: AgentView, needs: Needs) -> list[str]:
    """What the agent is not, in words."""
    about = view.registration
    lacking = []
    if needs.group and about.group != needs.group:
        lacking.append(f"in group {needs.group}")
    if needs.os and about.os.lower() != needs.os.lower():
        lacking.append(f"on {needs.os}")
    lacking += [
        f"with label {name}={value}" if value else f"with label {name}"
        for name, value in needs.labels.items()
        if name not in about.labels or (value and about.labels[name] != value)
    ]
    return lacking


def _none_fits(enabled: Sequence[AgentView], needs: Needs) -> Reason:
    wanted = _lacks(min(enabled, key=lambda view: len(_lacks(view, needs))), needs)
    return Reason(
        "no_agent_fits",
        f"no live agent {' and '.join(wanted)}: {counted(len(enabled), 'agent')} that could work"
        " may not take this",
        "it goes on when a fitting agent comes",
        do=("skep agents", _START),
        facts={
            "agents": len(enabled),
            "group": needs.group,
            "os": needs.os,
            "labels": dict(needs.labels),
        },
    )


def _kinds(fleet: Fleet, fitting: Sequence[AgentView], needs: Needs) -> list[Reason]:
    kind = needs.downloader
    if not kind or any(kind in view.registration.kinds for view in fitting):
        return []
    offered = sorted({name for view in fitting for name in view.registration.kinds})
    ever = any(kind in view.registration.kinds for view in fleet.agents)
    never = "" if ever else "; none ever did, so whoever takes it will refuse it"
    return [
        Reason(
            "no_agent_offers",
            f"no live agent offers downloader {kind}: {counted(len(fitting), 'agent')} could work,"
            f" with {', '.join(offered) or 'none at all'}{never}",
            f"it can be done when an agent that offers {kind} comes",
            do=("skep agents", _START),
            facts={"downloader": kind, "offered": offered, "agents": len(fitting)},
        )
    ]


def _target(fleet: Fleet, agent: str) -> list[Reason]:
    view = fleet.find(agent)
    facts = {"agent": agent}
    frees = "it goes on when that agent does"
    if view is None:
        text = f"only agent {agent} may take it, and no such agent is registered"
        return [Reason("target_agent", text, frees, do=(_START,), facts=facts)]
    if not view.alive(fleet.now, fleet.alive_after):
        ago = duration(fleet.now - view.seen_at)
        text = f"only agent {agent} may take it, and it was last heard {ago} ago"
        return [Reason("target_agent", text, frees, do=("skep agents",), facts=facts)]
    if not view.enabled:
        text = f"only agent {agent} may take it, and it is disabled"
        do = (f"skep agents enable {agent}",)
        return [Reason("target_agent", text, frees, do=do, facts=facts)]
    return []
