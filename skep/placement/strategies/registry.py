"""Every strategy by its name: those that come with Skep, and those of installed packages.

A center makes one set. A strategy that is not installed any more holds its runs: they wait until
the package is back, and no agent is given their requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random

from skep.model.fleet.agent import AgentView
from skep.model.fleet.strategy_traits import GROUP, Strategy, added_strategies
from skep.placement.strategies.any_agent import AnyAgent
from skep.placement.strategies.chained import ChainedAgents
from skep.placement.strategies.contract import AgentsNow, PlacementStrategy
from skep.placement.strategies.fixed import FixedAgents
from skep.placement.strategies.guarded import GuardedStrategy
from skep.placement.strategies.hashed import HashedAgents
from skep.runtime.clock import Clock
from skep.runtime.plug_ins import loaded
from skep.store.ports.placement import Allocation, Placing

log = logging.getLogger(__name__)

#: Those that come with Skep.
OWN: tuple[Callable[[], PlacementStrategy], ...] = (
    AnyAgent,
    FixedAgents,
    ChainedAgents,
    HashedAgents,
)


class Strategies:
    """The strategies of one center. Those of packages are made when a run first names them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        own = (make() for make in OWN)
        self._made: dict[str, PlacementStrategy] = {one.traits.name: one for one in own}

    def named(self, name: str) -> PlacementStrategy:
        """Never raises: one that cannot be made places nothing."""
        if name not in self._made:
            self._made[name] = self._added(name)
        return self._made[name]

    def _added(self, name: str) -> PlacementStrategy:
        if name not in added_strategies():
            log.error("placement strategy %s is not installed here; its runs wait", name)
            return MissingStrategy(name)
        try:
            return GuardedStrategy(loaded(GROUP)[name](), self._clock)
        except Exception:
            log.exception("placement strategy %s cannot be made; its runs wait", name)
            return MissingStrategy(name)


class MissingStrategy:
    """Stands for a strategy that is not installed here."""

    def __init__(self, name: str) -> None:
        self.traits = Strategy(name)

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:  # noqa: ARG002 - as every strategy
        return []

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:  # noqa: ARG002 - as every strategy
        return None
