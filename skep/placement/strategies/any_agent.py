"""The strategy `any`: every agent that fits may take every request. Centers only."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skep.model.fleet.agent import AgentView
from skep.model.fleet.strategy_traits import ANY
from skep.placement.strategies.contract import AgentsNow
from skep.placement.strategies.shared import Shared
from skep.store.ports.placement import Allocation, Placing


class AnyAgent:
    """Asked only for runs that want certain agents; others have no allocation."""

    traits = ANY

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:  # noqa: ARG002 - as every strategy
        return []

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:
        return Shared(allocation.target) if now.fitting(allocation.settings) else None
