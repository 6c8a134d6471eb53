"""Runs of jobs in several simulated centers: ends, allocations, freezes, tokens and sinks.

    python -m skep.testing.simulation.runs --seed 1

In a storm centers are frozen beyond their leases, thawed, killed and cut off from the store, agents
die and the bus loses its data. Then it is calm, and another set of runs ends without any fault. At
the end the ledger adds up, every run has ended as requested, lanes equal the store, no allocation,
token or known run is left, and no sink got more than a batch twice.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.bus.memory import MemoryBus
from skep.center.http.authentication import Role, digest_of
from skep.errors import Conflict, SkepError
from skep.lanes.dispatch import lane_limits
from skep.model.delivery import DeliveryState
from skep.model.jobs.job import Job, PlacementPart, SinkPart, SpiderPart
from skep.model.states import RunState
from skep.store.sql.schema.agents import tokens
from skep.store.sql.store import SqlStore
from skep.testing.simulation.gates import NoAnswer
from skep.testing.simulation.run_agents import RunAgent
from skep.testing.simulation.run_centers import RunCenter, own_tasks, settings_in
from skep.testing.simulation.run_spiders import (
    COUNT,
    END_AT,
    FAIL_AT,
    SinkContent,
    simulated_sinks,
)
from skep.testing.simulation.virtual_loop import LoopClock, VirtualLoop

ENDS = ("all done", "finish", "cancel", "page limit", "failure", "pause")
PLACEMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"strategy": "any", "group": "default"},
    {"strategy": "fixed", "n": 1},
    {"strategy": "chained", "n": 1, "when_gone": "wait", "patience": 600},
    {"strategy": "hashed"},
)
#: The final state of a run by its end.
STATES = {"cancel": RunState.CANCELLED, "failure": RunState.FAILED}
#: The token of all agents.
TOKEN = "simulated"  # noqa: S105 - for a store in memory
#: Maximum seconds for anything after the storm.
CALM_LIMIT = 900.0


class Broken(AssertionError):
    """Something was lost, left behind or repeated too often; the message names the seed."""


@dataclass(frozen=True, slots=True)
class RunsPlan:
    """Sizes and rates of faults."""

    centers: int = 3
    agents: int = 4
    #: Runs during the storm, and after it.
    runs: int = 10
    calm_runs: int = 6
    pages: int = 60
    storm_seconds: float = 60.0
    freeze_every: float = 6.0
    kill_every: float = 20.0
    outage: float = 0.002


@dataclass(slots=True)
class Result:
    """The counts of one seed."""

    seed: int
    simulated_seconds: float = 0.0
    wall_seconds: float = 0.0
    freezes: int = 0
    kills: int = 0
    outages: int = 0
    items: int = 0
    repeated: int = 0
    repairs: int = 0
    ends: dict[str, int] = field(default_factory=dict)


class Scenario:
    """Builds the world of one seed and runs it, on a separate loop."""

    def __init__(self, seed: int, plan: RunsPlan, folder: Path, loop: VirtualLoop) -> None:
        self.plan, self.result = plan, Result(seed)
        self._loop = loop
        self._rng = Random(seed)  # noqa: S311 - a simulation must replay
        self._clock = LoopClock(loop)
        self.settings = settings_in(folder)
        self.store = SqlStore("sqlite://", inline=True)
        self.bus = MemoryBus(lane_limits(self.settings.lanes), self._clock)
        self.output_sink = SinkContent(self._rng)
        self.calm = False
        outage = lambda: 0.0 if self.calm else plan.outage  # noqa: E731
        self.centers = [
            RunCenter(f"c{n}", loop, self._rng, self.settings, self.store, self.bus, outage)
            for n in range(plan.centers)
        ]
        self.agents = [
            RunAgent(f"a{n}", TOKEN, self.centers, self._rng) for n in range(plan.agents)
        ]
        #: Runs by name, with their planned end.
        self.runs: dict[str, str] = {}
        self._number = 0

    async def run(self) -> Result:
        await self.store.open()
        await self.store.tokens.add(digest_of(TOKEN), Role.AGENT, "", self._clock.now())
        for center in self.centers:
            center.start()
        for agent in self.agents:
            agent.start()
        watch = self._loop.create_task(self._watch())
        storm = [
            self._loop.create_task(self._again(self.plan.freeze_every, self._freeze)),
            self._loop.create_task(self._again(self.plan.kill_every, self._kill)),
            self._loop.create_task(self._again(30.0, self._forget)),
            self._loop.create_task(self._again(20.0, self._kill_agent)),
        ]
        self.output_sink.away = 0.05
        users = [self._loop.create_task(self._user(n)) for n in range(self.plan.runs)]
        await asyncio.sleep(self.plan.storm_seconds)
        await self._calm_down(storm)
        await asyncio.gather(*users)
        await self._until(self._settled, "the storm")
        await self._check(watch)
        await self._calm_runs()
        await self._check(watch)
        self._sum_up()
        return self.result

    # -- faults

    async def _again(self, mean: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / mean))
            await action()

    async def _freeze(self) -> None:
        """SIGSTOP for longer than any lease; others take over meanwhile."""
        center = self._rng.choice(self.centers)
        if center.services is None or center.gate.frozen:
            return
        self.result.freezes += 1
        gate = center.gate
        gate.freeze()
        self._loop.call_later(self._rng.uniform(3.0, 20.0), gate.thaw)

    async def _kill(self) -> None:
        center = self._rng.choice(self.centers)
        if center.services is not None:
            self.result.kills += 1
            center.kill()
            self._loop.call_later(self._rng.uniform(0.5, 6.0), center.start)

    async def _forget(self) -> None:
        await self.bus.lanes.clear()

    async def _kill_agent(self) -> None:
        self._rng.choice(self.agents).kill()

    async def _calm_down(self, storm: list[asyncio.Task[None]]) -> None:
        for task in storm:
            task.cancel()
        await asyncio.sleep(25.0)  # frozen and killed parts are back
        self.calm, self.output_sink.away = True, 0.0

    # -- users

    async def _user(self, number: int) -> None:
        """Start a job and end its run in the way that its number selects."""
        await asyncio.sleep(self._rng.uniform(0.0, self.plan.storm_seconds * 0.6))
        end = ENDS[number % len(ENDS)]
        run = await self._start(number, end)
        self.runs[run] = end
        await asyncio.sleep(self._rng.uniform(2.0, 8.0))
        if end == "finish":
            await self._move(run, RunState.FINISHED)
        elif end == "cancel":
            await self._move(run, RunState.CANCELLED)
        elif end == "pause":
            await self._move(run, RunState.PAUSED)
            await asyncio.sleep(self._rng.uniform(1.0, 10.0))
            await self._move(run, RunState.RUNNING)

    async def _start(self, number: int, end: str) -> str:
        self._number += 1
        pages = self.plan.pages
        said: dict[str, str | int | float | bool] = {COUNT: pages, END_AT: 0, FAIL_AT: 0}
        if end in {"page limit", "failure"}:
            said[END_AT if end == "page limit" else FAIL_AT] = pages // 3
        job = Job(
            f"job{self._number}",
            settings={"block_size": 5, "retries": 3},
            spider=SpiderPart("simulated.py", said, restarts=1000),
            placement=msgspec.convert(PLACEMENTS[number % len(PLACEMENTS)], PlacementPart),
            sinks=(SinkPart("simulated://sink/"),),
        )
        await self.store.jobs.save(job, None, "", self._clock.now())
        key = f"run {self._number}"
        return str(
            await self._ask(lambda services: services.jobs.starts.start_run(job.name, key, 20.0))
        )

    async def _move(self, run: str, to: RunState) -> None:
        try:
            await self._ask(lambda services: services.intake.move(run, to))
        except Conflict:  # requested twice, or it has ended before
            return

    async def _ask(self, work: Callable[[Any], Any]) -> Any:
        """Call centers until one answers."""
        while True:
            try:
                return await self._rng.choice(self.centers).do(work)
            except NoAnswer:
                pass
            except Conflict:
                raise
            except SkepError:
                pass
            await asyncio.sleep(1.0)

    # -- checks

    async def _watch(self) -> None:
        """The ledger adds up at every moment, and no sink gets too many records."""
        while True:
            await asyncio.sleep(1.0)
            counted, audited = await self.store.ledgers.read(), await self.store.ledgers.audit()
            if counted != audited or counted.unaccounted:
                raise self._broken(f"counted {counted.line()}; audited {audited.line()}")
            if self.output_sink.broken:
                raise self._broken(self.output_sink.broken)

    async def _until(self, condition: Callable[[], Awaitable[str]], after: str) -> None:
        deadline = self._loop.time() + CALM_LIMIT
        while left := await condition():
            if self._loop.time() > deadline:
                raise self._broken(f"long after {after}: {left}")
            await asyncio.sleep(1.0)

    async def _settled(self) -> str:
        """What is left to do, or left behind; "" = nothing."""
        for run, end in self.runs.items():
            kept = await self.store.runs.get(run)
            wanted = STATES.get(end, RunState.FINISHED)
            if kept.state is RunState.FAILED and wanted is not RunState.FAILED:
                raise self._broken(f"run {run} ({end}) has failed: {kept.reason}")
            if kept.state is not wanted:
                return f"run {run} ({end}) is {kept.state}"
            row = await self.store.job_runs.get(run)
            if wanted is not RunState.FAILED and (row is None or row.open):
                return f"run {run} ({end}) is not closed"
            for view in await self.store.deliveries.of(run):
                over = view.delivery.state is not DeliveryState.OPEN
                if wanted is not RunState.FAILED and not over:
                    return f"the sink of {run} lacks {view.pending} items ({view.delivery.error})"
        return await self._left_behind()

    async def _left_behind(self) -> str:
        ready = {ref.id for ref in await self.store.blocks.claimable(10_000)}
        if (there := await self.bus.lanes.ids()) != ready:
            return f"lanes have {sorted(there)}, the store {sorted(ready)}"
        if open_ := await self.store.allocations.open():
            return f"allocations of {[one.run for one in open_]}"
        if good := self._good_tokens():
            return f"tokens of {good}"
        ended = set(await self.store.runs.over(sorted(self.runs)))
        for agent in self.agents:
            if kept := agent.runs & ended:
                return f"{agent.name} remembers {sorted(kept)}"
        return ""

    def _good_tokens(self) -> list[str]:
        query = sa.select(tokens.c.subject).where(tokens.c.role == "driver", tokens.c.revoked == 0)
        with self.store.database.engine.connect() as connection:
            return sorted(connection.execute(query).scalars())

    async def _check(self, watch: asyncio.Task[None]) -> None:
        """Check that everything is settled and that the sinks have all items of the store."""
        if watch.done():
            watch.result()
        for run, end in self.runs.items():
            if STATES.get(end) is RunState.FAILED:
                continue
            items = {item.id for item in await self.store.checkpoints.items(run, 0, 100_000)}
            told = self.output_sink.records.get(run, [])
            if set(told) != items:
                raise self._broken(f"run {run} has {len(items)} items, its sink {len(set(told))}")

    async def _calm_runs(self) -> None:
        """Without faults every run ends and nothing is repaired."""
        before = [center.repaired for center in self.centers]
        await asyncio.gather(*(self._user(n) for n in range(self.plan.calm_runs)))
        await self._until(self._settled, "the calm")
        await asyncio.sleep(4 * self.settings.lanes.reconcile_every)
        await self._until(self._settled, "the calm")
        repaired = [center.repaired for center in self.centers]
        if repaired != before:
            last = [center.services.repairs.last for center in self.centers if center.services]
            raise self._broken(f"without any fault something was repaired: {last}")

    def _broken(self, what: str) -> Broken:
        seed = self.result.seed
        return Broken(
            f"seed {seed}, second {self._loop.time():.1f}: {what}; replay with"
            f" `python -m skep.testing.simulation.runs --seed {seed}`"
        )

    def _sum_up(self) -> None:
        result = self.result
        result.simulated_seconds = round(self._loop.time(), 1)
        result.outages = sum(center.gate.outages for center in self.centers)
        result.items = sum(len(set(told)) for told in self.output_sink.records.values())
        result.repeated = self.output_sink.repeated
        result.repairs = sum(center.repaired for center in self.centers)
        for end in self.runs.values():
            result.ends[end] = result.ends.get(end, 0) + 1


def simulate(seed: int, plan: RunsPlan | None = None) -> Result:
    """Run one seed; raises Broken."""
    begun = time.perf_counter()
    loop = VirtualLoop()
    with TemporaryDirectory() as folder:
        own_tasks(loop)
        scenario = Scenario(seed, plan or RunsPlan(), Path(folder), loop)
        try:
            with simulated_sinks(scenario.output_sink):
                result = loop.run_until_complete(scenario.run())
        finally:
            _end(scenario, loop)
    result.wall_seconds = round(time.perf_counter() - begun, 1)
    return result


def _end(scenario: Scenario, loop: VirtualLoop) -> None:
    for center in scenario.centers:
        center.kill()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    scenario.store.database.engine.dispose()
    loop.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m skep.testing.simulation.runs")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            sys.stdout.buffer.write(msgspec.json.encode(simulate(seed)) + b"\n")
        except Broken as broken:
            sys.stderr.write(f"{broken}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
