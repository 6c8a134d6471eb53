"""May this agent work for that run? One rule after the other; the first that fails is the
reason. Pure: whoever asks brings the agents and the moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from skep.model.fleet.agent import REVOKED, AgentView
from skep.model.fleet.placement import Placement, Verdict, own_target
from skep.model.jobs.app import APP_KIND, IMAGE_KIND

MEGABYTE = 2**20
#: Kinds of work that are no downloads.
HOSTING = frozenset({APP_KIND, IMAGE_KIND})


class Need(msgspec.Struct, frozen=True):
    """What a run asks of an agent."""

    placement: Placement
    #: The kind of downloader.
    kind: str
    #: The agents that were chosen for it; None = nobody was chosen, all may.
    chosen: frozenset[str] | None = None


class Moment(msgspec.Struct, frozen=True):
    """When it is asked, and for how long after a beat an agent counts as alive."""

    now: float
    alive_after: float
    #: Those who do not; None = their last beats tell.
    silent: frozenset[str] | None = None

    def hears(self, view: AgentView) -> bool:
        if self.silent is not None:
            return view.id not in self.silent
        return view.alive(self.now, self.alive_after)


def judge(view: AgentView, need: Need, moment: Moment) -> Verdict:
    """The first rule that fails, in the order in which a person would look."""
    rule, detail = next(_failed(view, need, moment), ("", ""))
    return Verdict(view.id, view.registration.name, rule, detail)


def _failed(view: AgentView, need: Need, moment: Moment) -> Iterator[tuple[str, str]]:
    yield from _unable(view, need, moment)
    if need.chosen is None or view.id not in need.chosen:
        yield from _unwanted(view, need.placement)
    # Who was chosen keeps the run, whatever becomes of its labels and its memory (C5).
    if need.chosen is not None and view.id not in need.chosen:
        yield "chosen", "others were chosen for this run"


def _unable(view: AgentView, need: Need, moment: Moment) -> Iterator[tuple[str, str]]:
    """What the agent cannot do now, whoever asks."""
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
    """A person has put it aside; one that is cordoned keeps the runs that it was chosen for."""
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
    """What this run asks for beyond that."""
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
    """Those that fail no rule."""
    return [view for view in views if judge(view, need, moment).fits]


def explain(views: Iterable[AgentView], need: Need, moment: Moment) -> list[Verdict]:
    """Why (not) this agent? One line for each."""
    return [judge(view, need, moment) for view in views]


def shortfall(wanted: int, verdicts: Collection[Verdict]) -> str:
    """A sentence that names what is missing, for a run that cannot start."""
    fit = sum(verdict.fits for verdict in verdicts)
    needed = "1 agent is" if wanted == 1 else f"{wanted} agents are"
    head = f"{needed} needed and {fit} of {len(verdicts)} can be had"
    others = [f"{v.name} ({v.rule}: {v.detail})" for v in verdicts if not v.fits]
    more = f"; and {len(others) - 5} more" if len(others) > 5 else ""  # noqa: PLR2004 - enough to see why
    return f"{head}; {'; '.join(others[:5])}{more}" if others else f"{head}; no others are known"
