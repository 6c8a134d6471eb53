"""Reads the metrics of store and bus: ledger, lanes, agents. Run by centers, in a loop.

/metrics answers from memory and never asks the store or the bus, however often it is called.
The ledger is a sum over all runs, so the pause grows with the duration of one reading.
"""

from __future__ import annotations

from skep.bus.ports import Bus
from skep.center.metrics import Metrics
from skep.fleet.roster import Roster
from skep.runtime.clock import Clock
from skep.store.ports import Store

#: Minimum seconds between two readings.
EVERY = 5.0
#: A pause is at least this many times as long as the reading before it.
REST = 50.0


class Gauges:
    """The gauges of one center."""

    def __init__(
        self, store: Store, bus: Bus, roster: Roster, metrics: Metrics, clock: Clock
    ) -> None:
        self._store = store
        self._bus = bus
        self._roster = roster
        self._metrics = metrics
        self._clock = clock

    async def look(self) -> float:
        """Read everything once; return the seconds to wait before the next reading."""
        began = self._clock.monotonic()
        self._metrics.show_ledger(await self._store.ledgers.read())
        took = self._clock.monotonic() - began
        self._metrics.show_lanes(await self._bus.lanes.sizes())
        alive = sum(self._roster.alive(view.id) for view in self._roster.views)
        self._metrics.agents_up.set(alive)
        return max(EVERY, took * REST)
