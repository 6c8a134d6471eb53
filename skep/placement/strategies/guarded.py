"""A strategy of a package, held to its contract: its mistakes stay with its own runs.

The dispatcher serves all runs in one round, so an exception of one strategy must not end it. What
a strategy cannot answer is held back, and the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random

from skep.errors import NotEnoughAgents
from skep.model.fleet.agent import AgentView
from skep.placement.strategies.contract import AgentsNow, PlacementStrategy
from skep.runtime.clock import Clock
from skep.runtime.log_repeats import KeyedRepeats, repeated
from skep.store.ports.placement import Allocation, Placing, Wanted

log = logging.getLogger(__name__)


class GuardedStrategy:
    """Answers as the strategy does, and never raises anything unexpected."""

    def __init__(self, strategy: PlacementStrategy, clock: Clock) -> None:
        self._strategy = strategy
        #: The dispatcher asks several times a second.
        self._repeats = KeyedRepeats(clock)
        self.traits = strategy.traits

    def choose(self, fit: Sequence[AgentView], wanted: int, rng: Random) -> list[str]:
        """Raises NotEnoughAgents when the strategy fails, or does not choose `wanted` different
        agents of those that it was given."""
        name = self.traits.name
        try:
            chosen = list(self._strategy.choose(fit, wanted, rng))
        except Exception as error:
            if times := self._repeats.due("choose"):
                log.exception("placement strategy %s cannot choose%s", name, repeated(times))
            raise NotEnoughAgents(f"placement strategy {name} failed: {error!r}") from error
        able = [view.id for view in fit]  # whatever it chose is compared, never hashed
        if not all(one in able for one in chosen):
            raise NotEnoughAgents(f"placement strategy {name} chose {chosen}, which do not all fit")
        if not len(set(chosen)) == len(chosen) == wanted:
            raise NotEnoughAgents(
                f"placement strategy {name} chose {chosen}; {wanted} different agents are needed"
            )
        return chosen

    def placing(self, allocation: Allocation, now: AgentsNow) -> Placing | None:
        try:
            placing = self._strategy.placing(allocation, now)
            if placing is None:
                return None
            return GuardedPlacing(placing, self.traits.name, allocation.run, self._repeats)
        except Exception:
            if times := self._repeats.due(allocation.run):
                named = self.traits.name, allocation.run, repeated(times)
                log.exception("placement strategy %s cannot place run %s%s", *named)
            return None


class GuardedPlacing:
    """One moment's placing; a request that it cannot place is held back."""

    def __init__(self, placing: Placing, name: str, run: str, repeats: KeyedRepeats) -> None:
        self._placing = placing
        self._name = name
        self._run = run
        self._repeats = repeats
        self.by_session = bool(placing.by_session)
        self.chained = bool(placing.chained)

    def target(self, wanted: Wanted) -> str | None:
        try:
            return self._placing.target(wanted)
        except Exception:
            if times := self._repeats.due((self._run, "request")):
                named = self._name, self._run, repeated(times)
                log.exception("placement strategy %s cannot place a request of run %s%s", *named)
            return None
