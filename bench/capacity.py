"""`capacity`: how many centers does a fleet of a given size need? A seeded simulation.

It simulates one of several equal centers. Its agents send heartbeats every 3 s, each with its own
phase. A heartbeat needs the center's event loop, one at a time, and then a write: heartbeats that
arrive together are written together, one write at a time, at least 60 ms after the start of the
last. Leased and reported blocks use a part of the loop. The duration of a write is measured here,
on a real PostgreSQL with fsync; the costs of a heartbeat, a block and an agent for a center were
measured by `python -m bench fleet` and are in `Costs`. Each center also searches for silent agents
and for changes, by default every second, for which the database scans the whole fleet, and reads
all agents every 15 s; both are measured here. Larger fleets get a longer `center.sweep_every`,
which the table shows.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

import sqlalchemy as sa

from bench.figures import Result, check, neat, percentile
from bench.fleet import BEAT_EVERY, BLOCKS_PER_AGENT, P99_BAR
from bench.options import Options
from skep.center.services import HEARTBEATS_EVERY
from skep.model.fleet.agent import Registration, Vitals
from skep.settings import CenterSettings, StoreSettings
from skep.store.open_store import open_store
from skep.store.ports import Store
from skep.testing.servers import postgres

FLEETS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
SIMULATED_SECONDS = 20.0
#: Maximum share of a center's core: above it a burst takes too long.
BUSY_BAR = 0.6
#: Maximum signals per second that one center sends to the others.
SIGNALS = 20.0
ROUNDS, MANY = 30, 1000
#: Maximum share of a database core for the sweeps of all centers.
LOOKS_BAR = 0.5
#: Rows of a larger fleet, with which sweeps are measured.
LARGE = 50_000
#: Agents of one center, in a fleet of a thousand.
AGENTS_BAR = 250.0


_COPIES = f"""
INSERT INTO agents (id, registration, enabled, registered_at, seen_at, vitals, changed_at)
SELECT 'copy-' || no, registration, enabled, registered_at, seen_at, vitals, changed_at
FROM agents, generate_series(1, {LARGE - MANY}) AS no WHERE id = 'a0'
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds and megabytes of a center; seconds of a write in the store."""

    idle: float = 0.16
    beat: float = 0.00105
    block: float = 0.010
    base_mb: float = 85.0
    agent_mb: float = 0.11
    write: float = 0.008
    row: float = 0.00003
    #: To read one agent of the whole fleet, which each center does every `roster_every`.
    look: float = 0.00001
    #: CPU seconds of the database to skip one agent in a search for changes.
    scan: float = 0.0000003


@dataclass(frozen=True, slots=True)
class Center:
    """The results of a simulated center."""

    busy: float
    p50_ms: float
    p99_ms: float
    writes_per_second: float


async def time_store(url: str) -> Costs:
    """The costs of a write of one heartbeat, of each further heartbeat in it, and of a read."""
    store = open_store(url, StoreSettings())
    await store.open()
    try:
        names = [f"a{number}" for number in range(MANY)]
        joining = (store.agents.register(Registration(name, name), 0.0) for name in names)
        await asyncio.gather(*joining)
        one = await _median(store, names[:1])
        many = await _median(store, names)
        used = time.process_time()
        for _ in range(ROUNDS):
            await store.agents.all()
        used = time.process_time() - used
        scan = await _time_looks(store, url)
    finally:
        await store.close()
    row = max(0.0, many - one) / (MANY - 1)
    return replace(Costs(), write=one, row=row, look=used / ROUNDS / MANY, scan=scan)


async def _time_looks(store: Store, url: str) -> float:
    """Seconds per agent, for many agents without changes."""
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(_COPIES)
    engine.dispose()
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        news = await store.agents.news(since=1e9, silent=-1.0, ahead=1e9)
        took.append(time.perf_counter() - begun)
        check(0, len(news), "agents with changes")
    return percentile(took, 0.5) / LARGE


async def _median(store: Any, names: Sequence[str]) -> float:
    took = []
    for number in range(ROUNDS):
        begun = time.perf_counter()
        await store.agents.heartbeat([(name, Vitals(load=1.0)) for name in names], float(number))
        took.append(time.perf_counter() - begun)
    return percentile(took, 0.5)


def others_of(agents: int, fleet: int, costs: Costs) -> float:
    """The share of its core that a center needs for everything except heartbeats."""
    looking = fleet * costs.look / CenterSettings().roster_every
    return costs.idle + looking + agents * BLOCKS_PER_AGENT * costs.block


def sweep_every(fleet: int, centers: int, costs: Costs) -> float:
    """Seconds between two sweeps: the setting, 1 by default."""
    return max(CenterSettings().sweep_every, centers * fleet * costs.scan / LOOKS_BAR)


def simulate(agents: int, fleet: int, costs: Costs, seed: int) -> Center:
    """Simulate one center with this number of agents of the fleet."""
    rng = Random(seed)
    beats = _moments(agents, rng)
    others = others_of(agents, fleet, costs)
    pace = costs.beat / max(0.05, 1.0 - others)
    free, heard = 0.0, []
    for moment in beats:
        free = max(free, moment) + pace * rng.uniform(0.5, 1.5)
        heard.append((moment, free))
    waits, writes = _written(heard, costs, rng)
    busy = others + len(beats) * costs.beat / SIMULATED_SECONDS
    p50, p99 = (1000 * percentile(waits, share) for share in (0.5, 0.99))
    return Center(busy, p50, p99, writes / SIMULATED_SECONDS)


def _moments(agents: int, rng: Random) -> list[float]:
    """The times of heartbeats; each agent is a little late each time."""
    found: list[float] = []
    for _ in range(agents):
        moment = rng.uniform(0.0, BEAT_EVERY)
        while moment < SIMULATED_SECONDS:
            found.append(moment)
            moment += BEAT_EVERY + rng.expovariate(100.0)
    heapq.heapify(found)
    return [heapq.heappop(found) for _ in range(len(found))]


def _written(
    heard: Sequence[tuple[float, float]], costs: Costs, rng: Random
) -> tuple[list[float], int]:
    """(seconds of each heartbeat from its arrival to its answer, number of writes)."""
    waits: list[float] = []
    writes, began, ended, at = 0, -HEARTBEATS_EVERY, 0.0, 0
    while at < len(heard):
        began = max(began + HEARTBEATS_EVERY, ended, heard[at][1])
        last = at
        while last < len(heard) and heard[last][1] <= began:
            last += 1
        ended = began + costs.write * rng.expovariate(1.0) + costs.row * (last - at)
        waits += [ended - moment for moment, _ in heard[at:last]]
        writes, at = writes + 1, last
    return waits, writes


def centers_for(agents: int, costs: Costs, seed: int) -> tuple[int, Center] | None:
    """The smallest number within the bars, and the results of each center; None = there is none."""
    room = BUSY_BAR - others_of(0, agents, costs)
    if room <= 0:
        return None
    load = agents * (costs.beat / BEAT_EVERY + BLOCKS_PER_AGENT * costs.block)
    count = max(1, int(load / room))
    while True:
        center = simulate(-(-agents // count), agents, costs, seed)
        if center.busy <= BUSY_BAR and center.p99_ms < P99_BAR:
            return count, center
        if count >= agents:
            return None
        count += max(1, count // 50)


def line_of(agents: int, costs: Costs, seed: int) -> dict[str, float]:
    """One row of the table; without centers if no number is enough."""
    found = centers_for(agents, costs, seed)
    if found is None:
        return {"centers": 0, "heartbeats_per_second": neat(agents / BEAT_EVERY)}
    count, center = found
    each = agents / count
    return {
        "centers": count,
        "agents_per_center": neat(each),
        "sweep_every": neat(sweep_every(agents, count, costs)),
        "heartbeats_per_second": neat(agents / BEAT_EVERY),
        "heartbeat_p99_ms": neat(center.p99_ms),
        "busy_share_of_a_core": neat(center.busy),
        "store_writes_per_second": neat(count * center.writes_per_second),
        "store_rows_per_second": neat(2 * agents / BEAT_EVERY),
        "websockets_per_center": neat(each),
        "megabytes_per_center": neat(costs.base_mb + each * costs.agent_mb),
        "redis_signals_per_second": neat(count * min(SIGNALS, agents * BLOCKS_PER_AGENT)),
    }


def run(options: Options) -> Result:
    with postgres(durable=True) as server:
        costs = asyncio.run(time_store(server.fresh_database()))
    table = {f"{agents}": line_of(agents, costs, options.seed) for agents in FLEETS}
    per_center = table[str(FLEETS[0])].get("agents_per_center", 0.0)
    return Result(
        name="capacity",
        unit="agents per center, simulated",
        ours=per_center,
        peer=None,
        floor=None,
        ratio=per_center,
        bar=AGENTS_BAR,
        ok=per_center >= AGENTS_BAR,
        meaning="agents that one center serves within the bars of a heartbeat; more is better",
        more={
            "fleets": table,
            "costs": {name: neat(value) for name, value in asdict(costs).items()},
            "seed": options.seed,
        },
    )
