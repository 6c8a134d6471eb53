"""The strategy `hashed`: each key has its agent, on a ring of those that fit. Centers only."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skep.model.fleet.agent import AgentView
from skep.model.fleet.placement import Key
from skep.model.fleet.strategy_traits import HASHED
from skep.placement.hash_keys import key_of
from skep.placement.hash_ring import Ring
from skep.placement.strategies.contract import AgentsNow
from skep.store.ports.placement import Allocation, Placing, Wanted


class HashedAgents:
    """Keeps the last ring: making one takes longer than asking it a thousand times."""

    traits = HASHED

    def __init__(self) -> None:
        self._ring = Ring(())

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:  # noqa: ARG002 - as every strategy
        return []

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:
        ring = self._ring_of(now.fitting(allocation.settings))
        return Hashed(ring, allocation.settings.placement.key) if ring.agents else None

    def _ring_of(self, views: Sequence[AgentView]) -> Ring:
        agents = tuple(sorted(view.id for view in views))
        if self._ring.agents != agents:
            self._ring = Ring(agents, before=self._ring)
        return self._ring


class Hashed:
    """Each key has its agent."""

    chained = False

    def __init__(self, ring: Ring, key: Key) -> None:
        self._ring = ring
        self._key = key
        self.by_session = key == "session"

    def target(self, wanted: Wanted) -> str | None:
        return self._ring.owner(key_of(wanted, self._key)) or None
