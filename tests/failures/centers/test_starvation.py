"""Fault 36: a flood at one priority and a trickle at another; how long does the trickle wait?

The real dispatcher, leases, lanes and store, on a clock that is moved by hand, with a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest

from skep.bus.memory import MemoryBus
from skep.lanes.dispatch import Dispatcher, lane_limits
from skep.lanes.leases import Leases
from skep.model.hosts.politeness import Politeness
from skep.settings import LaneSettings
from skep.store.ports.requests import RequestRow
from skep.store.sql.blocks.rows import ids_in
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.ground import new_run, row
from skep.testing.fleet import tell

SECONDS, STEP = 200.0, 0.25
AGENTS = 4
#: Blocks in one lease, as agents ask for them, and the seconds that they take with it.
WANT, WORK = 2, (0.5, 1.5)


@dataclass
class Flood:
    """Agents that never rest, a run that never ends, and another that asks now and then."""

    seed: int
    priority: int
    trickle_every: float
    waits: list[float] = field(default_factory=list)
    open: dict[int, float] = field(default_factory=dict)

    async def run(self) -> None:
        rng, clock, lanes = Random(self.seed), ManualClock(), LaneSettings()
        store = SqlStore("sqlite://", inline=True)
        await store.open()
        bus = MemoryBus(lane_limits(lanes), clock)
        dispatcher = Dispatcher(lanes, store, bus, clock, "c", lambda: None, Politeness())
        leases = Leases(dispatcher, lanes, store, bus, clock, Politeness())
        await new_run(store, "flood", priority=self.priority)
        await new_run(store, "trickle")
        busy_until = [0.0] * AGENTS
        next_one, next_reconcile, sent, number = 0.0, 0.0, 0, 0
        while (now := clock.monotonic()) < SECONDS:
            waiting = (await store.ledgers.read("flood")).waiting
            if waiting < 2000:
                some = [own(f"flood {sent + n}", self.priority) for n in range(2000)]
                sent += (await store.requests.accept("flood", some, now)).new
            if now >= next_one:
                await store.requests.accept("trickle", [own(f"drop {number}", 5)], now)
                self.open[number] = now
                number += 1
                next_one = now + rng.expovariate(1 / self.trickle_every)
            await dispatcher.dispatch()
            if now >= next_reconcile:
                await dispatcher.reconcile()
                next_reconcile = now + lanes.reconcile_every
            for agent in range(AGENTS):
                if busy_until[agent] > now:
                    continue
                busy_until[agent] = now + rng.uniform(*WORK)
                for block in await leases.lease(f"a{agent}", WANT):
                    if block.run == "trickle":
                        self._served(len(ids_in(block.body)), now)
            clock.advance(STEP)
        await store.close()

    def _served(self, count: int, now: float) -> None:
        """The oldest go first, in the order in which they came."""
        for number in sorted(self.open)[:count]:
            self.waits.append(now - self.open.pop(number))

    @property
    def longest(self) -> float:
        """Of those that were served and of those that still wait."""
        return max([*self.waits, *(SECONDS - since for since in self.open.values())])


def own(name: str, priority: int) -> RequestRow:
    """To a loopback host, which has no rate limit."""
    return msgspec.structs.replace(row(name, priority), host="localhost")


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_a_flood_of_super_does_not_starve_the_lowest_priority(seed: int) -> None:
    """Fault 36: flood at -1, trickle at 5. Four agents take four leases a second, one in
    twenty begins at low: no request waits much longer than twenty leases."""
    flood = Flood(seed, priority=-1, trickle_every=5.0)
    await flood.run()
    tell("36", flood=-1, trickle=5, served=len(flood.waits), longest_wait=flood.longest)
    assert len(flood.waits) > 15
    assert flood.longest < 15.0


async def test_a_flood_at_the_head_of_its_own_lane_does_not_starve_the_tail() -> None:
    """Fault 36, D2: flood at 4, which enters at the head, trickle at 5, which enters at the
    tail of the same lane: ageing brings it forward."""
    flood = Flood(3, priority=4, trickle_every=5.0)
    await flood.run()
    tell("36", flood=4, trickle=5, served=len(flood.waits), longest_wait=flood.longest)
    assert len(flood.waits) > 15
    assert flood.longest < LaneSettings().age_seconds + 15.0
