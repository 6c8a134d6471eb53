"""The strategy `chained`: `n` agents, and a request goes to the agent that found it. Centers.

What becomes of requests whose agent is gone is decided in `gone_agents.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skep.model.fleet.agent import AgentView
from skep.model.fleet.strategy_traits import CHAINED
from skep.placement.strategies.contract import AgentsNow
from skep.store.ports.placement import Allocation, Placing, Wanted


class ChainedAgents:
    """Chooses as `fixed` does."""

    traits = CHAINED

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:
        return rng.sample([view.id for view in fit], wanted)

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:
        present = [agent for agent in allocation.agents if now.present(agent)]
        return Chained(present, now.rng) if present else None


class Chained:
    """Back to the agent that found it; what no page led to, to a random one.

    A request whose agent is not there is held back: what becomes of it is decided by
    the run's policy, not here.
    """

    by_session = False
    chained = True

    def __init__(self, present: Sequence[str], rng: Random) -> None:
        self._present = list(present)
        self._rng = rng

    def target(self, wanted: Wanted) -> str | None:
        if wanted.place is None:
            return self._rng.choice(self._present) if self._present else None
        return wanted.place if wanted.place in self._present else None
