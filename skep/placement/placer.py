"""Decides which agents may take which requests now. Run by centers only.

It caches the open allocations and reads the roster. The dispatcher asks it for the target of a
run's requests; a lease asks it which targets an agent may take. Both ask often, so the store is
read at most every `LOOK_EVERY` seconds; code that changes an allocation notifies it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random

from skep.fleet.roster import Roster
from skep.model.downloader_kinds import downloader_kind
from skep.model.fleet.agent import AgentView
from skep.model.fleet.placement import KIND, RUN, own_target
from skep.model.run import RunSettings
from skep.placement.eligibility import Moment, Need, fitting, judge
from skep.placement.strategies.registry import Strategies
from skep.runtime.clock import Clock
from skep.settings import CenterSettings
from skep.store.ports import Store
from skep.store.ports.placement import Allocation, Placing

#: Seconds for which facts from the store are used.
LOOK_EVERY = 0.5


def need_of(settings: RunSettings, allocation: Allocation | None = None) -> Need:
    """The requirements of a run; with an allocation, only the chosen agents are allowed."""
    chosen = frozenset(allocation.agents) if allocation and _chooses(allocation) else None
    return Need(settings.placement, settings.downloader, chosen)


class Placer:
    """The placement of this center. `on_change`: agents may ask again."""

    def __init__(
        self,
        settings: CenterSettings,
        store: Store,
        roster: Roster,
        clock: Clock,
        rng: Random,
        on_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._clock = clock
        self.rng = rng
        self.strategies = Strategies(clock)
        self._on_change = on_change
        self._open: dict[str, Allocation] = {}
        self._rules: dict[str, RunSettings] = {}
        self._read_at = -math.inf
        #: Runs without an allocation that need one: their center died during the start.
        self.unallocated: set[str] = set()

    @property
    def open(self) -> list[Allocation]:
        """Allocations that were not released at the last read."""
        return list(self._open.values())

    @property
    def moment(self) -> Moment:
        return Moment(self._clock.now(), self._settings.alive_after, self._roster.silent)

    def learn(self, allocation: Allocation) -> None:
        """An allocation was made or changed on this center."""
        self._open[allocation.run] = allocation
        self._on_change()

    async def refresh(self) -> None:
        """Read the store again."""
        before = self._open
        self._open = {one.run: one for one in await self._store.allocations.open()}
        if self._open:
            await self._roster.look_around()
        self._read_at = self._clock.monotonic()
        if _outline(before) != _outline(self._open):
            self._on_change()

    async def look(self, runs: Sequence[str]) -> dict[str, Placing | None]:
        """The placing of each run; None = no agent can take its requests now. Runs without an
        allocation are left out: any agent may work for them."""
        await self._learn_rules(runs)
        placed = [run for run in runs if not self._rules[run].placement.plain]
        stale = self._clock.monotonic() - self._read_at >= LOOK_EVERY
        if placed and (stale or any(run not in self._open for run in placed)):
            await self.refresh()
        self.unallocated = {run for run in placed if run not in self._open}
        found: dict[str, Placing | None] = {
            run: self.placing(self._open[run]) if run in self._open else None for run in placed
        }
        for run in runs:
            if run not in found and not self.offered(self._rules[run].downloader):
                found[run] = None
        return found

    async def _learn_rules(self, runs: Sequence[str]) -> None:
        """A run's settings do not change once it has requests."""
        unknown = [run for run in runs if run not in self._rules]
        if unknown:
            self._rules |= await self._store.runs.settings_of(unknown)
        self._rules = {run: self._rules.get(run, RunSettings()) for run in runs}

    def offered(self, kind: str) -> bool:
        """Whether an agent offers this kind. If no agent ever did, any agent may take the requests
        and report why it cannot."""
        if downloader_kind(kind).everywhere or not self._roster.may_judge:
            return True
        views = [view for view in self._roster.views if kind in view.registration.kinds]
        return not views or any(view.enabled and self.present(view.id) for view in views)

    def present(self, agent: str) -> bool:
        """Known, alive and not disabled; a cordoned agent is present for the runs it has."""
        view = self._roster.view(agent)
        if view is None or self._roster.given_up(agent):
            return False
        return (view.enabled or view.cordoned) and self._roster.alive(agent)

    def keeps_slots(self, agent: str) -> bool:
        """Whether it is cordoned, and still works for runs that it was chosen for."""
        view = self._roster.view(agent)
        return view is not None and view.cordoned and bool(self._slots(agent))

    def _slots(self, agent: str) -> list[Allocation]:
        return [one for one in self._open.values() if _chooses(one) and agent in one.agents]

    def _kept_targets(self, agent: str) -> list[str]:
        """The targets that a cordoned agent may take."""
        slots = self._slots(agent)
        shared = [one.target for one in slots if one.settings.placement.traits.shares]
        own = own_target(agent) if len(shared) < len(slots) else ()
        return [*own, *shared]

    def placing(self, allocation: Allocation) -> Placing | None:
        """None when no agent can take its requests."""
        strategy = self.strategies.named(allocation.settings.placement.strategy)
        return strategy.placing(allocation, self)

    def fitting(self, settings: RunSettings) -> list[AgentView]:
        """Agents that are eligible for a run, by its rules alone."""
        return fitting(self._roster.views, need_of(settings), self.moment)

    def targets(self, agent: str, kinds: Sequence[str] | None = None) -> list[str]:
        """Targets of the blocks that an agent which asks for work may take."""
        view = self._roster.view(agent)
        if view is not None and view.cordoned:
            return self._kept_targets(agent)
        found = self._roster.targets(agent, kinds)
        if view is not None and self._open:
            found += [one.target for one in self._open.values() if self._admits(one, view)]
        return found

    def _admits(self, allocation: Allocation, view: AgentView) -> bool:
        traits = allocation.settings.placement.traits
        if not traits.shares:
            return False
        if traits.chooses:
            return view.id in allocation.agents
        # It asks, so it is alive.
        asking = Moment(self._clock.now(), math.inf)
        return judge(view, need_of(allocation.settings), asking).fits

    def reachable(self, target: str) -> bool:
        """Whether a present agent could take a block with this target."""
        if target.startswith(KIND):
            return self.offered(target.removeprefix(KIND))
        if target.startswith(RUN):
            return all(self.placing(one) for one in self._open.values() if one.target == target)
        if not target:
            return True
        view = self._roster.view(target)
        mine = view is None or not view.cordoned or target in self._kept_targets(target)
        return mine and self.present(target)


def _chooses(allocation: Allocation) -> bool:
    return allocation.settings.placement.traits.chooses


def _outline(allocations: Mapping[str, Allocation]) -> list[object]:
    return [(one.run, one.state, one.agents) for one in allocations.values()]
