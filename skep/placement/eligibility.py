"""The rules that decide whether an agent may work for a run; the first rule that fails is the
reason. Pure: the caller passes the agents and the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from skep.model.fleet.agent import REVOKED, AgentView
from skep.model.fleet.placement import Placement, Verdict, own_target
from skep.model.jobs.app import APP_KIND, IMAGE_KIND

MEGABYTE = 2**20
#: Kinds of work other than downloads.
HOSTING = frozenset({APP_KIND, IMAGE_KIND})


class Need(msgspec.Struct, frozen=True):
    """The requirements of a run."""

    placement: Placement
    #: The kind of downloader.
    kind: str
    #: The agents that were chosen for it; None = none were chosen, all are allowed.
    chosen: frozenset[str] | None = None


class Moment(msgspec.Struct, frozen=True):
    """The time of the check, and how long after a heartbeat an agent counts as alive."""

    now: float
    alive_after: float
    #: Agents that are not alive; None = decide by their last heartbeats.
    silent: frozenset[str] | None = None

    def hears(self, view: AgentView) -> bool:
        if self.silent is not None:
            return view.id not in self.silent
        return view.alive(self.now, self.alive_after)


def judge(view: AgentView, need: Need, moment: Moment) -> Verdict:
    """The first rule that fails, in the order in which a user would check."""
    rule, detail = next(_failed(view, need, moment), ("", ""))
    return Verdict(view.id, view.registration.name, rule, detail)


def _failed(view: AgentView, need: Need, moment: Moment) -> Iterator[tuple[str, str]]:
    yield from _unable(view, need, moment)
    if need.chosen is None or view.id not in need.chosen:
        yield from _unwanted(view, need.placement)
    # A chosen agent keeps the run, even if its labels or its free memory change.
    if need.chosen is not None and view.id not in need.chosen:
        yield "chosen", "others were chosen for this run"


def _unable(view: AgentView, need: Need, moment: Moment) -> Iterator[tuple[str, str]]:
    """Rules that the agent fails for every run."""
    if not view.enabled:
        yield from _aside(view, need)
    if not moment.hears(view):
        yield "alive", f"silent for {moment.now - view.seen_at:.0f} s"
    if not own_target(view.id):
        yield "id", "its id looks like something else; give it another"
    if need.kind not in view.registration.kinds:
        offered = ", ".join(view.registration.kinds) or "nothing"
        what = "does not offer" if need.kind in HOSTING else "has no downloader"
        yield "capability", f"it {what} {need.kind}; it offers {offered}"


def _aside(view: AgentView, need: Need) -> Iterator[tuple[str, str]]:
    """The agent is disabled by a user; a cordoned one keeps the runs that it was chosen for."""
    again = "`skep agents enable` ends that"
    if view.cordoned:
        if need.chosen is None or view.id not in need.chosen:
            yield "cordoned", f"it keeps the runs that it has and gets no new ones; {again}"
    elif view.draining:
        yield "draining", f"it hands over what it has and gets no more; {again}"
    elif view.aside == REVOKED:
        yield "revoked", f"its credential was revoked; it may join again, and then {again}"
    else:
        yield "enabled", "a person gives it no work; `skep agents enable` does"


def _unwanted(view: AgentView, asked: Placement) -> Iterator[tuple[str, str]]:
    """Rules of this run that the agent fails."""
    about = view.registration
    if asked.group and about.group != asked.group:
        yield "group", f"it is in group {about.group or 'none'}, not in {asked.group}"
    if asked.os and about.os.split(" ")[0].lower() != asked.os.lower():
        yield "os", f"it runs on {about.os or 'something unknown'}, not on {asked.os}"
    for name, value in sorted(asked.labels.items()):
        if about.labels.get(name) != value:
            has = about.labels.get(name)
            yield "labels", f"label {name} is {has or 'missing'}, not {value}"
    free = view.vitals.free_memory // MEGABYTE
    if free < asked.memory:
        yield "memory", f"{free} MB of memory are free, {asked.memory} are asked for"


def fitting(views: Iterable[AgentView], need: Need, moment: Moment) -> list[AgentView]:
    """The agents that fail no rule."""
    return [view for view in views if judge(view, need, moment).fits]


def explain(views: Iterable[AgentView], need: Need, moment: Moment) -> list[Verdict]:
    """The verdict for each agent."""
    return [judge(view, need, moment) for view in views]


def shortfall(wanted: int, verdicts: Collection[Verdict]) -> str:
    """A sentence that names what is missing, for a run that cannot start."""
    fit = sum(verdict.fits for verdict in verdicts)
    needed = "1 agent is" if wanted == 1 else f"{wanted} agents are"
    head = f"{needed} needed and {fit} of {len(verdicts)} can be had"
    others = [f"{v.name} ({v.rule}: {v.detail})" for v in verdicts if not v.fits]
    more = f"; and {len(others) - 5} more" if len(others) > 5 else ""  # noqa: PLR2004 - enough to see why
    return f"{head}; {'; '.join(others[:5])}{more}" if others else f"{head}; no others are known"
