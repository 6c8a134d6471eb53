"""Reads what /metrics shows of store and bus: ledger, lanes, agents. Run by centers, in a loop.

/metrics answers from memory: however often and by whom it is called, it asks neither the store
nor the bus. The ledger is a sum over all runs, so the pause grows with what one look takes.
"""

from __future__ import annotations

from skep.bus.ports import Bus
from skep.center.metrics import Metrics
from skep.fleet.roster import Roster
from skep.runtime.clock import Clock
from skep.store.ports import Store

#: Seconds from one look to the next, at least.
EVERY = 5.0
#: A pause is at least this many times as long as the look before it.
REST = 50.0


class Gauges:
    """One center's looks."""

    def __init__(
        self, store: Store, bus: Bus, roster: Roster, metrics: Metrics, clock: Clock
    ) -> None:
        self._store = store
        self._bus = bus
        self._roster = roster
        self._metrics = metrics
        self._clock = clock

    async def look(self) -> float:
        """Read everything once; returns the seconds to wait before the next look."""
        began = self._clock.monotonic()
        self._metrics.show_ledger(await self._store.ledgers.read())
        took = self._clock.monotonic() - began
        self._metrics.show_lanes(await self._bus.lanes.sizes())
        alive = sum(self._roster.alive(view.id) for view in self._roster.views)
        self._metrics.agents_up.set(alive)
        return max(EVERY, took * REST)
