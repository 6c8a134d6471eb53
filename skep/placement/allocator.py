"""Allocates agents for a run that starts. Centers only.

It chooses the required number of agents at random from those that are alive and eligible, stores
the choice and notifies them. A repeated call returns the first choice. If there are too few, the
run does not start, and the reason names what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from skep.errors import CenterStopping, NotEnoughAgents, UnknownRun
from skep.fleet.roster import Roster
from skep.model.run import Run, RunSettings, told_to_agents
from skep.model.states import ENDED_RUN_STATES
from skep.placement.eligibility import Moment, explain, fitting, shortfall
from skep.placement.placer import Placer, need_of
from skep.runtime.clock import Clock
from skep.runtime.retry import retry
from skep.store.ports import Store
from skep.store.ports.placement import Allocation
from skep.wire.messages import Command

#: Seconds between two attempts while a run waits for agents.
LOOK_AGAIN = 0.25

Tell = Callable[[str, Command], Awaitable[None]]


def _never() -> bool:
    return False


class Allocator:
    """Chooses agents. `tell` sends a command to one of them; no caller waits while `stopping`."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        placer: Placer,
        clock: Clock,
        rng: Random,
        tell: Tell,
        stopping: Callable[[], bool] = _never,
    ) -> None:
        self._store = store
        self._roster = roster
        self._placer = placer
        self._clock = clock
        self._rng = rng
        self._tell = tell
        self._stopping = stopping

    async def choose(self, run: str, settings: RunSettings, wait: float | None = 0.0) -> list[str]:
        """Choose agents for a run that is about to start; nothing is stored.

        Waits up to `wait` seconds for enough of them; raises NotEnoughAgents. After its start, the
        center waits until silent agents may be declared dead, if those agents would be enough.
        None = do not wait. The wait ends when the run has been ended meanwhile, which then gets no
        agents; raises CenterStopping when the center stops.
        """
        if settings.placement.plain or await self._known(run) is not None:
            return []
        deadline = self._clock.monotonic() + (wait or 0.0)

        def decide(_error: NotEnoughAgents, _failures: int) -> float | None:
            over = self._clock.monotonic() >= deadline and not self._may_come(settings)
            return None if wait is None or over else LOOK_AGAIN

        async def pause(seconds: float) -> None:
            await self._clock.sleep(seconds)
            if self._stopping():
                raise CenterStopping(
                    f"the center stopped while run {run} waited for agents; it was not started:"
                    " repeat the call, or call another center"
                )

        return await retry(lambda: self._pick(run, settings), NotEnoughAgents, decide, pause)

    def _may_come(self, settings: RunSettings) -> bool:
        """Whether the agents without a heartbeat so far would be enough. No agent is declared
        dead before a full `alive_after` has passed since the start."""
        if self._roster.may_judge:
            return False
        everyone = Moment(self._clock.now(), math.inf, frozenset())
        fit = fitting(self._roster.views, need_of(settings), everyone)
        return len(fit) >= settings.placement.wanted

    async def _ended(self, run: str) -> bool:
        try:
            return (await self._store.runs.get(run)).state in ENDED_RUN_STATES
        except UnknownRun:
            return False

    async def _known(self, run: str) -> Allocation | None:
        try:
            return await self._store.allocations.get(run)
        except UnknownRun:
            return None

    async def _pick(self, run: str, settings: RunSettings) -> list[str]:
        placement = settings.placement
        views = await self._roster.refresh()
        verdicts = explain(views, need_of(settings), self._placer.moment)
        fit = {verdict.agent for verdict in verdicts if verdict.fits}
        if len(fit) < placement.wanted:
            if await self._ended(run):
                return []
            why = shortfall(placement.wanted, verdicts)
            raise NotEnoughAgents(f"run {run} cannot start as {placement.in_words()}: {why}")
        if not placement.traits.chooses:
            return []
        able = sorted((view for view in views if view.id in fit), key=lambda view: view.id)
        strategy = self._placer.strategies.named(placement.strategy)
        return strategy.choose(able, placement.wanted, self._rng)

    async def keep(self, run: Run, agents: Sequence[str]) -> Allocation | None:
        """Store the choice and notify the agents; None for a run that needs none. An existing
        allocation is used, even if the run had ended in between."""
        if run.settings.placement.plain:
            return None
        known = await self._known(run.id)
        if known is not None and known.released_at is None:
            return known
        kept = await self._store.allocations.allocate(run.id, agents, self._clock.now())
        self._placer.learn(kept)
        await self.tell(kept, "allocate")
        return kept

    async def ensure(self, run: Run) -> Allocation | None:
        """The same for an existing run; agents are chosen now if it has no allocation."""
        return await self.keep(run, await self.choose(run.id, run.settings))

    async def tell(self, allocation: Allocation, verb: str) -> None:
        """Send `allocate` or `release` to every agent of an allocation, without waiting. An agent
        that misses it gets the settings with its first block."""
        detail = ""
        if verb == "allocate":
            detail = msgspec.json.encode(told_to_agents(allocation.settings)).decode()
        for agent in allocation.agents:
            await self._tell(agent, Command(verb, allocation.run, detail))


@dataclass(frozen=True, slots=True)
class AllocationParts:
    """What code that allocates agents, or moves work between them, needs. Shared by centers."""

    store: Store
    roster: Roster
    placer: Placer
    allocator: Allocator
    clock: Clock
    rng: Random
