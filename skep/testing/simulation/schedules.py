"""Many schedules on several centers that are killed, frozen and get wrong clocks.

The real firing step and the real ledger of fires in SQLite run on virtual time. Every job is due
every minute, by different schedules; at the end each minute of each job must have one outcome and
one run, whatever happened. A seed can be replayed exactly:

    python -m skep.testing.simulation.schedules --hours 10 --jobs 1000 --seed 1
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.jobs.schedule.firing import planned_from
from skep.model.jobs.schedule import CatchUp, Overlap, Schedule
from skep.store.sql.schema.schedules import fires
from skep.store.sql.store import SqlStore
from skep.testing.simulation.firing_centers import FiringPlan, SimCenter, SimRuns
from skep.testing.simulation.world import EPOCH, World, drive

MINUTE = 60
#: States of a due time that is not decided yet.
NO_ANSWER = ("due", "claimed", "queued", "missed")
#: The reason with which `overlap: skip` skips a due time.
STILL_GOING = re.compile(r"run (\S+) was still active")
#: Seconds without faults until all due times are processed.
CALM = 120


class Broken(AssertionError):
    """A due time without an outcome, or with two; the message names the seed."""


@dataclass(slots=True)
class Result:
    """The counts of one seed."""

    seed: int
    plan: dict[str, Any]
    due: int = 0
    #: Due times that opened a run; those without an outcome; additional runs of a due time.
    ran: int = 0
    #: Due times that `overlap: skip` skipped while an earlier run was really active: that one had
    #: started late, after the center that had claimed it died.
    passed_over: int = 0
    missed: int = 0
    doubled: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    struck_at_work: int = 0
    freezes: int = 0
    clock_steps: int = 0
    taken_over: int = 0
    opened_again: int = 0
    #: Maximum seconds between due time and run.
    latest: float = 0.0
    wall_seconds: float = 0.0


def schedule_of(number: int) -> Schedule:
    """Every minute, by different schedules and policies."""
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
    """The simulation of one seed."""

    def __init__(self, seed: int, plan: FiringPlan) -> None:
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
        """Raises Broken if a due time was missed or doubled."""
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
        """Set a center's clock wrong, and correct it later."""
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
            skipped = connection.execute(_skipped(last)).all()
        result.passed_over = sum(self._was_busy(row.reason, row.ended_at) for row in skipped)
        ran = {key for key in self.runs.opened if key[1] <= _key(last)}
        ended = {state: n for state, n in result.outcomes.items() if state not in NO_ANSWER}
        result.ran = len(ran)
        result.missed = result.due - sum(ended.values())
        result.doubled = sum(self.runs.opened[key] - 1 for key in ran) + odd
        result.opened_again = self.runs.again
        result.struck_at_work = sum(center.at_work for center in self.centers)

    def _was_busy(self, reason: str, decided_at: float) -> bool:
        found = STILL_GOING.match(reason)
        return found is not None and self.runs.was_going(found[1], decided_at - EPOCH)

    def _judge(self) -> None:
        result = self.result
        # A clock that is ahead fires many due times together, and a policy may then skip some.
        right = not self._plan.clock_every and not self._plan.freeze_every
        left_out = right and result.ran + result.passed_over != result.due
        if result.missed or result.doubled or left_out:
            raise Broken(
                f"seed {result.seed}: {result.missed} missed, {result.doubled} doubled of"
                f" {result.due} due, {result.ran} ran; outcomes {result.outcomes}; replay with"
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


def _skipped(last: int) -> sa.Select[Any]:
    late = fires.c.due_at <= last, fires.c.state == "skipped"
    return sa.select(fires.c.reason, fires.c.ended_at).where(*late)


def _count(where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(sa.func.count()).select_from(fires).where(where)


def simulate(seed: int, plan: FiringPlan) -> Result:
    """Run one seed."""
    return Scenario(seed, plan).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m skep.testing.simulation.schedules")
    parser.add_argument("--seed", type=int, default=1)
    for name, default in asdict(FiringPlan()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    options = vars(parser.parse_args())
    seed = options.pop("seed")
    try:
        result = simulate(seed, FiringPlan(**options))
    except Broken as broken:
        sys.stderr.write(f"{broken}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
