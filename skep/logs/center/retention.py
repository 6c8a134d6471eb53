"""Keeps stored logs within budgets of bytes and age: the oldest pieces are deleted.

Runs on centers. An agent over its own budget loses its own lines, before the common budget is
applied. Nothing is deleted that is within every budget.
"""

from __future__ import annotations

from msgspec import Struct

from skep.runtime.clock import Clock
from skep.store.ports.logs import LogPieces


class LogBudget(Struct, frozen=True):
    """What is kept."""

    #: Stored bytes, of all logs and of those of one agent.
    bytes: int = 10 * 2**30
    agent_bytes: int = 2**30
    #: Seconds.
    age: float = 30 * 86400.0


class LogRetention:
    """Call `step` repeatedly; it returns the number of freed bytes."""

    def __init__(self, pieces: LogPieces, clock: Clock, budget: LogBudget) -> None:
        self._pieces = pieces
        self._clock = clock
        self._budget = budget

    async def step(self) -> int:
        before, freed = self._clock.now() - self._budget.age, 0
        for stored in await self._pieces.stored():
            surplus = stored.bytes - self._budget.agent_bytes
            if stored.agent and surplus > 0:
                freed += await self._pieces.delete_oldest(stored.agent, surplus, before)
        total = sum(stored.bytes for stored in await self._pieces.stored())
        surplus = max(0, total - self._budget.bytes)
        return freed + await self._pieces.delete_oldest(None, surplus, before)
