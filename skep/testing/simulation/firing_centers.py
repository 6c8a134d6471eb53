"""Centers of the simulation of schedules: each fires every second, is killed, frozen, and gets a
wrong clock, always between two calls to the outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from skep.errors import SkepError, StoreDown
from skep.jobs.schedule.firing import Firing
from skep.testing.simulation.faults import Crash
from skep.testing.simulation.world import World

#: Seconds between two steps of a center.
EVERY = 1.0
#: A fault occurs at one of the next calls of a center: any call, or (every second fault) a call
#: that writes, which can be half done.
BORDERS = 8
WRITING = frozenset({"claim", "start_run", "change"})


@dataclass(frozen=True, slots=True)
class FiringPlan:
    """The sizes and rates of the simulation."""

    jobs: int = 1000
    centers: int = 3
    hours: float = 10.0
    #: Seconds between two kills; each interrupts a center during its work.
    kill_every: float = 30.0
    #: Maximum seconds that a killed center is down.
    away: float = 20.0
    #: Mean seconds between two freezes (SIGSTOP) and two wrong clocks; 0 = none.
    freeze_every: float = 0.0
    clock_every: float = 0.0
    #: The rate of failed calls to the store.
    outage: float = 0.0005


class Run(NamedTuple):
    run: str
    until: float


class SimRuns:
    """Runs of jobs, stored once per (job, key). They last some seconds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[str, Run] = {}
        self.opened: Counter[tuple[str, str]] = Counter()
        self._known: set[tuple[str, str]] = set()
        #: Start and end of each run.
        self._times: dict[str, tuple[float, float]] = {}
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
        run = f"{job}-{fire_key}"
        self._times[run] = (self._world.time, until)
        self._last[job] = Run(run, until)

    def was_going(self, run: str, at: float) -> bool:
        """Whether a run was active at a time of the world's clock."""
        begin, end = self._times.get(run, (at, at))
        return begin <= at < end

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        found = ((job, self._last.get(job)) for job in jobs)
        now = self._world.time
        return {job: [run.run] for job, run in found if run is not None and run.until > now}

    async def stop_run(self, run: str, reason: str) -> None:
        """Without effect: a run ends by itself."""


class Frozen:
    """Awaited at a call: the step stops until the world continues it."""

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
    """Runs the firing step every second; is killed and frozen between any two calls."""

    def __init__(
        self, name: str, world: World, plan: FiringPlan, store: Any, runs: SimRuns
    ) -> None:
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
        """Start with empty memory, as after kill -9."""
        self._life += 1
        self._blow = None
        firing = Firing(self._fires, self._runs, self.clock, self._name, _one_by_one)
        self._turn_later(self._life, firing, self._world.rng.uniform(0.0, EVERY))

    def kill(self) -> None:
        """Kill it at one of its next calls, or between two steps."""
        self._strike(self._die)

    def freeze(self, seconds: float) -> None:
        self._strike(lambda: Frozen(seconds))

    def _strike(self, blow: Callable[[], Frozen | None]) -> None:
        self._blow, self._blow_in = blow, self._world.rng.randint(1, BORDERS)
        self._only_writing = self._world.chance(0.5)

    def _die(self) -> None:
        raise Crash

    async def border(self, call: str) -> None:
        """Called before and after every call to the outside."""
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
