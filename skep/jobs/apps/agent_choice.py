"""Chooses agents for the instances of applications. Centers only.

It only chooses; the caller stores the choice. An agent is lost after the job's own
`lost_seconds`, and never before this center has run long enough to call an agent dead.
"""

from __future__ import annotations

from collections.abc import Collection

from skep.model.jobs.app import Instance
from skep.model.run import Run
from skep.placement.allocator import AllocationParts
from skep.placement.eligibility import explain, shortfall
from skep.placement.placer import need_of

DRAINING = "draining"
#: Start of the reason of an instance without an agent.
NO_AGENT = "no agent is free for it"


class AgentChoice:
    """Uses the roster; keeps a run's allocation consistent with its instances."""

    def __init__(self, parts: AllocationParts) -> None:
        self._store, self._clock, self._rng = parts.store, parts.clock, parts.rng
        self._roster, self._placer = parts.roster, parts.placer
        self._allocator = parts.allocator

    async def chosen(self, run: Run) -> list[str]:
        """The agents that were allocated when the run started, one for each instance. Raises
        NotEnoughAgents when a center died before that, and there are too few now."""
        kept = await self._allocator.ensure(run)
        return kept.agents if kept else []

    def lost(self, one: Instance, seconds: float) -> bool:
        """Whether the agent has timed out and the instance may be started elsewhere; 0 = never."""
        if not seconds or not self.gone(one.agent):
            return False
        view = self._roster.view(one.agent)
        heard = max(view.seen_at if view else 0.0, one.placed_at)
        return self._clock.now() - heard >= seconds

    def gone(self, agent: str) -> bool:
        """Whether the agent is dead, not only disabled."""
        if not self._roster.may_judge:
            return False
        return self._roster.view(agent) is None or self._roster.given_up(agent)

    def leaving(self, agent: str) -> bool:
        """Whether the agent is being drained: its instances move to other agents."""
        view = self._roster.view(agent)
        return view is not None and view.aside == DRAINING

    async def another(self, run: Run, one: Instance, busy: Collection[str]) -> str:
        """An eligible agent without an instance of the run, preferably one of its allocation;
        "" when there is none."""
        await self._roster.refresh()
        fit = {view.id for view in self._placer.fitting(run.settings)} - set(busy)
        allocation = await self._store.allocations.get(run.id)
        seats = allocation.agents if allocation else []
        own = [agent for agent in seats if agent in fit]
        if own or not fit:
            return own[0] if own else ""
        to = self._rng.choice(sorted(fit))
        # Its own slot, or one whose agent no longer has an instance.
        free = [agent for agent in (one.agent, *seats) if agent in seats and agent not in busy]
        if free:
            why = f"instance {one.no} of the run was placed again"
            await self._store.allocations.replace(run.id, free[0], to, why, self._clock.now())
        return to

    async def why_none(self, run: Run, busy: Collection[str]) -> str:
        """Why there is no agent for an instance, as one sentence."""
        views = [view for view in self._roster.views if view.id not in busy]
        verdicts = explain(views, need_of(run.settings), self._placer.moment)
        return f"{NO_AGENT}: {shortfall(1, verdicts)}"
