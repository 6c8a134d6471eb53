"""Many schedules on several centers that are killed, frozen and misled about the time.

The real firing step and the real ledger in SQLite run on virtual time. Every job is due
each minute, by different words; at the end each minute of each job must have one outcome
and one run, whatever happened. A seed replays exactly:

    python -m skep.testing.simulation.schedules --hours 10 --jobs 1000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.errors import SkepError, StoreDown
from skep.jobs.fires import Firing, planned_from
from skep.model.schedule import CatchUp, Overlap, Schedule
from skep.store.sql.fire_tables import fires
from skep.store.sql.store import SqlStore
from skep.testing.simulation.faults import Crash
from skep.testing.simulation.world import EPOCH, World, drive

MINUTE = 60
#: Without faults, until everything that is due has been seen to.
CALM = 120
#: The centers look that often.
EVERY = 1.0
#: A blow falls at one of the next borders that a center crosses: of any call, or (every
#: second blow) of the calls that write, which are the ones that can be half done.
BORDERS = 8
WRITING = frozenset({"claim", "start_run", "change"})


class Broken(AssertionError):
    """A due time without an outcome, or with two; the seed is in the message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    jobs: int = 1000
    centers: int = 3
    hours: float = 10.0
    #: Seconds between two kills; each hits a center in the middle of its work.
    kill_every: float = 30.0
    #: Seconds that a killed center is away, at most.
    away: float = 20.0
    #: Mean seconds between two freezes (SIGSTOP) and two wrong clocks; 0 = none.
    freeze_every: float = 0.0
    clock_every: float = 0.0
    #: How often a call to the store fails.
    outage: float = 0.0005


@dataclass(slots=True)
class Result:
    """What happened."""

    seed: int
    plan: dict[str, Any]
    due: int = 0
    missed: int = 0
    doubled: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    struck_at_work: int = 0
    freezes: int = 0
    clock_steps: int = 0
    taken_over: int = 0
    opened_again: int = 0
    #: Seconds between due time and run, the worst.
    latest: float = 0.0
    wall_seconds: float = 0.0


class Run(NamedTuple):
    run: str
    until: float


class SimRuns:
    """Runs of jobs, kept as a store would: once per (job, key). They last some seconds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[str, Run] = {}
        self.opened: Counter[tuple[str, str]] = Counter()
        self._known: set[tuple[str, str]] = set()
        self.again = 0

    async def start_run(self, job: str, fire_key: str) -> str:
        if (job, fire_key) in self._known:
            self.again += 1
        else:
            self.create(job, fire_key)
        return f"{job}-{fire_key}"

    def create(self, job: str, fire_key: str) -> None:
        self._known.add((job, fire_key))
        self.opened[job, fire_key] += 1
        until = self._world.time + self._world.rng.uniform(1.0, 20.0)
        self._last[job] = Run(f"{job}-{fire_key}", until)

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        found = ((job, self._last.get(job)) for job in jobs)
        now = self._world.time
        return {job: [run.run] for job, run in found if run is not None and run.until > now}

    async def stop_run(self, run: str, reason: str) -> None:
        """Its time ends by itself."""


class Frozen:
    """Awaited by a border: the step stands still until the world goes on with it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[Frozen, None, None]:
        yield self


class SimClock:
    """A center's own wall clock, which may be wrong."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.off = 0.0

    def now(self) -> float:
        return self._world.now() + self.off

    def monotonic(self) -> float:
        return self._world.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._world.sleep(seconds)


class SimCenter:
    """Runs the firing step each second; is killed and frozen between any two calls."""

    def __init__(self, name: str, world: World, plan: Plan, store: Any, runs: SimRuns) -> None:
        self._name = name
        self._world = world
        self._plan = plan
        self._fires = _Border(store.fires, self)
        self._runs = _Border(runs, self)
        self.clock = SimClock(world)
        self._life = 0
        self._blow: Callable[[], Frozen | None] | None = None
        self._blow_in = 0
        self._only_writing = False
        self.at_work = 0
        self.calm = False
        self.start()

    def start(self) -> None:
        """With an empty head, as after kill -9."""
        self._life += 1
        self._blow = None
        firing = Firing(self._fires, self._runs, self.clock, self._name, _one_by_one)
        self._turn_later(self._life, firing, self._world.rng.uniform(0.0, EVERY))

    def kill(self) -> None:
        """At one of the next calls that it makes, or between two steps."""
        self._strike(self._die)

    def freeze(self, seconds: float) -> None:
        self._strike(lambda: Frozen(seconds))

    def _strike(self, blow: Callable[[], Frozen | None]) -> None:
        self._blow, self._blow_in = blow, self._world.rng.randint(1, BORDERS)
        self._only_writing = self._world.chance(0.5)

    def _die(self) -> None:
        raise Crash

    async def border(self, call: str) -> None:
        """Crossed before and after every call to the outside."""
        if self._blow is not None and (call in WRITING or not self._only_writing):
            self._blow_in -= 1
            if self._blow_in <= 0:
                blow, self._blow = self._blow, None
                self.at_work += call in WRITING
                frozen = blow()
                if frozen is not None:
                    await frozen
        if not self.calm and self._world.chance(self._plan.outage):
            raise StoreDown("simulated outage")

    def _turn_later(self, life: int, firing: Firing, seconds: float) -> None:
        def turn() -> None:
            if self._life == life:
                self._go_on(life, firing, firing.step())

        self._world.after(seconds, turn)

    def _go_on(self, life: int, firing: Firing, step: Coroutine[Any, Any, int]) -> None:
        if self._life != life:
            step.close()
            return
        try:
            frozen = step.send(None)
        except Crash:
            self._life += 1
            self._world.after(self._world.rng.uniform(0.5, self._plan.away), self.start)
        except (StopIteration, SkepError):
            self._turn_later(life, firing, EVERY)
        else:
            self._world.after(frozen.seconds, lambda: self._go_on(life, firing, step))


class _Border:
    def __init__(self, target: Any, center: SimCenter) -> None:
        self._target = target
        self._center = center

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._target, name)

        async def attempt(*args: Any, **kwargs: Any) -> Any:
            await self._center.border(name)
            result = await call(*args, **kwargs)
            await self._center.border(name)
            return result

        return attempt


async def _one_by_one(calls: Iterable[Coroutine[Any, Any, Any]]) -> Sequence[Any]:
    return [await call for call in calls]


def schedule_of(number: int) -> Schedule:
    """Each minute, said in different words and under different policies."""
    overlap = tuple(Overlap)[number % 4]
    words: tuple[dict[str, Any], ...] = (
        {"cron": "* * * * *"},
        {"every": MINUTE},
        {"cron": "*/1 * * * *", "zone": "Europe/Berlin"},
        {"cron": "* * * * *", "zone": "Australia/Lord_Howe", "jitter": 20.0},
        {"cron": "0 * * * * *"},
    )
    return Schedule(overlap=overlap, catch_up=CatchUp.ALL, **words[number % 5])


class Scenario:
    """One run of a seed."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self._plan = plan
        self.world = World(seed)
        self.result = Result(seed, asdict(plan))
        self.store = SqlStore("sqlite://", inline=True)
        drive(self.store.open())
        self.runs = SimRuns(self.world)
        self.jobs = {f"job{n:04}": schedule_of(n) for n in range(plan.jobs)}
        for job, schedule in self.jobs.items():
            drive(self.store.fires.plan(planned_from(job, schedule, self.world.now())))
        self.centers = [
            SimCenter(f"c{n}", self.world, plan, self.store, self.runs) for n in range(plan.centers)
        ]

    def run(self) -> Result:
        """Raises Broken when a due time was missed or doubled."""
        begun = time.perf_counter()
        self._schedule_faults()
        end = self._plan.hours * 3600
        self._until(end)
        for center in self.centers:
            center.calm, center.clock.off = True, 0.0
        self._until(end + CALM)
        self._sum_up(int(end))
        self.result.wall_seconds = round(time.perf_counter() - begun, 2)
        self.store.database.engine.dispose()
        self._judge()
        return self.result

    def _until(self, end: float) -> None:
        while self.world.time < end:
            self.world.step()

    def _schedule_faults(self) -> None:
        plan, rng = self._plan, self.world.rng
        self._again(lambda: plan.kill_every, self._kill)
        if plan.freeze_every:
            self._again(lambda: rng.expovariate(1 / plan.freeze_every), self._freeze)
        if plan.clock_every:
            self._again(lambda: rng.expovariate(1 / plan.clock_every), self._mislead)

    def _again(self, wait: Callable[[], float], action: Callable[[], None]) -> None:
        def turn() -> None:
            if not self.centers[0].calm:
                action()
                self.world.after(wait(), turn)

        self.world.after(wait(), turn)

    def _kill(self) -> None:
        self.result.kills += 1
        self.world.rng.choice(self.centers).kill()

    def _freeze(self) -> None:
        self.result.freezes += 1
        self.world.rng.choice(self.centers).freeze(self.world.rng.uniform(5.0, 90.0))

    def _mislead(self) -> None:
        """Somebody sets a center's clock, and puts it right later."""
        self.result.clock_steps += 1
        center = self.world.rng.choice(self.centers)
        center.clock.off = self.world.rng.choice((-1, 1)) * self.world.rng.uniform(1.0, 1800.0)
        self.world.after(self.world.rng.uniform(5.0, 120.0), lambda: _put_right(center))

    def _sum_up(self, seconds: int) -> None:
        result = self.result
        start = int(EPOCH)
        minutes = [t for t in range(start + 1, start + seconds + 1) if t % MINUTE == 0]
        result.due = len(minutes) * len(self.jobs)
        last = minutes[-1]
        with self.store.database.engine.connect() as connection:
            for state, count in connection.execute(_outcomes(last)):
                result.outcomes[state] = count
            result.latest = round(connection.execute(_latest(last)).scalar_one(), 1)
            taken = fires.c.reason.like("taken over%")
            result.taken_over = connection.execute(_count(taken)).scalar_one()
            odd = connection.execute(_count(fires.c.due_at % MINUTE != 0)).scalar_one()
        ran = {key for key in self.runs.opened if key[1] <= _key(last)}
        result.missed = result.due - len(ran)
        result.doubled = sum(self.runs.opened[key] - 1 for key in ran) + odd
        result.opened_again = self.runs.again
        result.struck_at_work = sum(center.at_work for center in self.centers)

    def _judge(self) -> None:
        result = self.result
        entered = sum(result.outcomes.values())
        good = result.outcomes.get("fired", 0) + result.outcomes.get("late", 0)
        if result.missed or result.doubled or entered != result.due or good != result.due:
            raise Broken(
                f"seed {result.seed}: {result.missed} missed, {result.doubled} doubled of"
                f" {result.due} due; outcomes {result.outcomes}; replay with"
                f" `python -m skep.testing.simulation.schedules --seed {result.seed}`"
            )


def _put_right(center: SimCenter) -> None:
    center.clock.off = 0.0


def _key(due: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due))


def _outcomes(last: int) -> sa.Select[Any]:
    query = sa.select(fires.c.state, sa.func.count()).where(fires.c.due_at <= last)
    return query.group_by(fires.c.state)


def _latest(last: int) -> sa.Select[Any]:
    return sa.select(sa.func.max(fires.c.ended_at - fires.c.due_at)).where(fires.c.due_at <= last)


def _count(where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(sa.func.count()).select_from(fires).where(where)


def simulate(seed: int, plan: Plan) -> Result:
    """Run one seed to its end."""
    return Scenario(seed, plan).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m skep.testing.simulation.schedules")
    parser.add_argument("--seed", type=int, default=1)
    for name, default in asdict(Plan()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    seed = options.pop("seed")
    try:
        result = simulate(seed, Plan(**options))
    except Broken as broken:
        sys.stderr.write(f"{broken}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
