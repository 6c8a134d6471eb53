"""One seeded run: a client submits while faults occur, then the faults end.

Checked after every step: both ledgers agree and add up, and no host with a rate limit is leased
twice. Checked at the end: every acknowledged request has ended, each success was stored once, and
each attempt was counted at its host.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, field

import msgspec
import sqlalchemy as sa

from skep.bus.memory import MemoryBus
from skep.lanes.dispatch import lane_limits
from skep.model.ledger import Ledger
from skep.model.request import NewRequest
from skep.model.run import NewRun, RunSettings
from skep.settings import CenterSettings, LaneSettings, LogSettings, Settings
from skep.store.sql.schema.hosts import sites
from skep.store.sql.schema.requests import attempts, requests
from skep.store.sql.store import SqlStore
from skep.testing.simulation.agents import SimAgent, Witness
from skep.testing.simulation.centers import SimCenter
from skep.testing.simulation.faults import Faults
from skep.testing.simulation.network import Lost, Network, Weather
from skep.testing.simulation.world import World, drive

RUN = "simulated"
CALM_LIMIT = 4000.0
#: Odd ones have a rate limit.
HOSTS = 12
#: Hosts with a rate limit that are leased to two agents, or to one that does not hold them.
_SHARED = """
SELECT r.host FROM requests r JOIN blocks b ON b.id = r.block
LEFT JOIN site_holds h ON h.host = r.host
WHERE r.state = 1 AND b.state = 2 AND r.host LIKE '%.example'
AND (h.block IS NULL OR h.block <> b.id)
"""


class LedgerBroken(AssertionError):
    """Something was lost or counted twice; the message names seed, step and ledgers."""


@dataclass(frozen=True, slots=True)
class ScenarioPlan:
    """Sizes and rates of faults."""

    centers: int = 3
    agents: int = 5
    requests: int = 500
    storm_seconds: float = 300.0
    crash: float = 0.004
    outage: float = 0.01
    failing: float = 0.2
    retries: int = 2


@dataclass(slots=True)
class Result:
    """The counts of one seed."""

    seed: int
    steps: int = 0
    simulated_seconds: float = 0.0
    wall_seconds: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    acknowledged: int = 0
    downloads: int = 0
    crashes: int = 0
    outages: int = 0
    messages_lost: int = 0
    agent_kills: int = 0
    freezes: int = 0
    flushes: int = 0
    #: Requests that were deferred because their host failed, as stored.
    deferred: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)


class Scenario:
    """Builds the world of one seed and runs it."""

    def __init__(self, seed: int, plan: ScenarioPlan | None = None) -> None:
        self.plan = plan or ScenarioPlan()
        self.result = Result(seed)
        self.world = World(seed)
        self.settings = Settings(
            center=CenterSettings(alive_after=11.0, sweep_every=1.0),
            logs=LogSettings(store=False),
            lanes=LaneSettings(lease_seconds=15.0, lease_limit=50, retry_cap=20.0),
        )
        self.store = SqlStore("sqlite://", inline=True)
        drive(self.store.open())
        self.bus = MemoryBus(lane_limits(self.settings.lanes), self.world)
        self.faults = Faults(self.world, self.plan.crash, self.plan.outage)
        self.centers = [
            SimCenter(f"c{n}", self.world, self.settings, self.store, self.bus, self.faults)
            for n in range(self.plan.centers)
        ]
        self.network = Network(self.world, self.centers, Weather())
        self.witness = Witness()
        self.agents = [
            SimAgent(f"a{n}", self.world, self.network, self.witness, self.plan.failing)
            for n in range(self.plan.agents)
        ]
        self._acknowledged: set[str] = set()
        self._calm = False
        self._changes = -1

    def run(self) -> Result:
        """Raises LedgerBroken with the command for a replay."""
        begun = time.perf_counter()
        self._schedule_storm()
        while self._going():
            self.world.step()
            self._check_ledgers()
            if self.world.time > self.plan.storm_seconds and not self._calm:
                self._calm_down()
        self._check_end()
        self._sum_up(time.perf_counter() - begun)
        self.store.database.engine.dispose()
        return self.result

    def _going(self) -> bool:
        if not self._calm:
            return True
        if self.world.time > self.plan.storm_seconds + CALM_LIMIT:
            raise self._broken("work is still open long after the storm")
        return self._pending() or drive(self.store.ledgers.read()).open > 0

    def _pending(self) -> bool:
        return len(self._acknowledged) < self.plan.requests

    # -- faults

    def _schedule_storm(self) -> None:
        self._submit_later(list(range(self.plan.requests)))
        self._again(20.0, self._kill_an_agent)
        self._again(15.0, self._freeze_an_agent)
        self._again(60.0, self._flush_the_bus)

    def _again(self, mean: float, action: object) -> None:
        def turn() -> None:
            if not self._calm:
                action()  # type: ignore[operator]
                self.world.after(self.world.rng.expovariate(1 / mean), turn)

        self.world.after(self.world.rng.expovariate(1 / mean), turn)

    def _kill_an_agent(self) -> None:
        self.result.agent_kills += 1
        self.world.rng.choice(self.agents).kill()

    def _freeze_an_agent(self) -> None:
        self.result.freezes += 1
        lease = self.settings.lanes.lease_seconds
        self.world.rng.choice(self.agents).freeze(self.world.rng.uniform(1.0, 3 * lease))

    def _flush_the_bus(self) -> None:
        self.result.flushes += 1
        drive(self.bus.lanes.clear())

    def _calm_down(self) -> None:
        self._calm = True
        self.faults.on = False
        self.network.weather = Weather(0.0, 0.0, 0.0, 0.0)

    # -- the client

    def _submit_later(self, numbers: list[int]) -> None:
        if not numbers:
            return
        size = self.world.rng.randint(1, 40)
        batch, rest = numbers[:size], numbers[size:]

        def attempt() -> None:
            if self._submit(batch):
                self._submit_later(rest)
            else:
                self.world.after(self.world.rng.uniform(0.5, 3.0), attempt)

        self.world.after(self.world.rng.uniform(0.0, 20.0), attempt)

    def _submit(self, batch: list[int]) -> bool:
        offered = [NewRequest(_url(n), priority=n % 7 - 1) for n in batch]
        settings = RunSettings(retries=self.plan.retries, block_size=10)
        try:
            self.network.call(lambda rooms: rooms.intake.open_run(RUN, NewRun("", settings)))
            self.network.call(lambda rooms: rooms.intake.accept(RUN, offered))
        except Lost:
            return False
        self._acknowledged |= {item.uri for item in offered}
        return True

    # -- checks

    def _check_ledgers(self) -> None:
        if self._changes == (changes := self._rows_changed()):
            return  # no row changed since the last check
        self._changes = changes
        if self.witness.broken:
            raise self._broken(self.witness.broken)
        counted = drive(self.store.ledgers.read())
        audited = drive(self.store.ledgers.audit())
        if counted != audited or counted.unaccounted or audited.unaccounted:
            raise self._broken(f"counted {counted.line()}; audited {audited.line()}")
        with self.store.database.engine.connect() as connection:
            shared = list(connection.exec_driver_sql(_SHARED).scalars())
        if shared:
            raise self._broken(f"{shared} are in a block that does not hold them")

    def _rows_changed(self) -> int:
        with self.store.database.engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            return driver.total_changes

    def _check_end(self) -> None:
        ledger = drive(self.store.ledgers.audit())
        if ledger.open or ledger.accepted != self.plan.requests:
            raise self._broken(f"not everything ended: {ledger.line()}")
        with self.store.database.engine.connect() as connection:
            kept = set(connection.execute(sa.select(requests.c.uri)).scalars())
            good = sa.select(attempts.c.request).where(attempts.c.failure == "")
            done = list(connection.execute(good).scalars())
            counted = sa.select(sa.func.sum(sites.c.requests), sa.func.sum(sites.c.deferred))
            asked, self.result.deferred = connection.execute(counted).one()
            tried = connection.execute(
                sa.select(sa.func.count()).where(attempts.c.failure != "lost")
            ).scalar()
        if asked != tried:
            raise self._broken(f"{asked} requests counted by host, but {tried} attempts stored")
        if self._acknowledged - kept:
            raise self._broken(f"acknowledged and lost: {sorted(self._acknowledged - kept)[:5]}")
        if len(done) != len(set(done)) or len(done) != ledger.done:
            raise self._broken(f"{len(done)} successes stored for {ledger.done} done requests")

    def _broken(self, what: str) -> LedgerBroken:
        return LedgerBroken(
            f"seed {self.result.seed}, step {self.world.steps}, second {self.world.time:.2f}: "
            f"{what}; replay with `python -m skep.testing.simulation --seed {self.result.seed}`"
        )

    def _sum_up(self, wall: float) -> None:
        result = self.result
        result.steps = self.world.steps
        result.simulated_seconds = self.world.time
        result.wall_seconds = wall
        result.ledger = drive(self.store.ledgers.read())
        result.acknowledged = len(self._acknowledged)
        result.downloads = sum(sum(agent.fetched.values()) for agent in self.agents)
        result.crashes, result.outages = self.faults.crashes, self.faults.outages
        result.messages_lost = self.network.lost
        for agent in self.agents:
            for verdict, count in agent.verdicts.items():
                result.verdicts[verdict] = result.verdicts.get(verdict, 0) + count


def _url(number: int) -> str:
    """Half of them on a loopback address, half on hosts with a rate limit."""
    host = f"site{number % HOSTS}.example" if number % 2 else "127.0.0.1"
    return f"http://{host}/{number}"


def simulate(seed: int, plan: ScenarioPlan | None = None) -> Result:
    """Run one seed."""
    return Scenario(seed, plan).run()


def as_json(result: Result) -> bytes:
    return msgspec.json.encode(result)
