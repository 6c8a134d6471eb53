"""The strategy `fixed`: `n` agents, chosen once at random, share the run. Centers only."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skep.model.fleet.agent import AgentView
from skep.model.fleet.strategy_traits import FIXED
from skep.placement.strategies.contract import AgentsNow
from skep.placement.strategies.shared import Shared
from skep.store.ports.placement import Allocation, Placing


class FixedAgents:
    """The run waits when none of its agents is present."""

    traits = FIXED

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:
        return rng.sample([view.id for view in fit], wanted)

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:
        present = any(now.present(agent) for agent in allocation.agents)
        return Shared(allocation.target) if present else None
