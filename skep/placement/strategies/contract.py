"""What the placer asks of a strategy, and what a strategy may ask about agents.

A package adds a strategy with a class of this shape: it is made without arguments, once per
center, and named by an entry point of the group `skep.placement`. Both methods are called on the
center's event loop and must not block; they move no block and write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from skep.model.fleet.agent import AgentView
from skep.model.fleet.strategy_traits import Strategy
from skep.model.run import RunSettings
from skep.store.ports.placement import Allocation, Placing


class AgentsNow(Protocol):
    """The agents of this moment, as the center knows them."""

    @property
    def rng(self) -> Random:
        """The source of every random choice."""

    def present(self, agent: str) -> bool:
        """Known, alive and not switched off."""

    def fitting(self, settings: RunSettings) -> list[AgentView]:
        """Agents that a run could be given, by its rules alone."""


class PlacementStrategy(Protocol):
    """Places the requests of the runs that name it."""

    @property
    def traits(self) -> Strategy:
        """What other rooms decide by. The name is that of the entry point."""

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:
        """`wanted` of the agents that fit, for a run that starts; there are enough. Called only
        when the traits say that it chooses. `fit` is sorted by id."""

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:
        """Who takes the requests of a run now; None when no agent can."""
