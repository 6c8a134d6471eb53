"""What becomes of due times: policies, clocks, queues, chains (faults 31, 33).

The ledger is a real store (SQLite, inline); only the runs are a double, because a test
must say when they end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from skep.errors import Conflict, NotEnoughAgents, StoreDown
from skep.jobs.schedule.clock_steps import HOLD
from skep.jobs.schedule.fire_policy import Busy, Due, decide
from skep.jobs.schedule.firing import PATIENCE, Firing, planned_from
from skep.model.jobs.fire import Fire, FireState
from skep.model.jobs.schedule import CatchUp, Overlap, Schedule
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock

START = 1_800_000_000  # on the minute
NAMES = {FireState.CLAIMED: "open"}


class Runs:
    """Runs that go on until the test ends them."""

    def __init__(self) -> None:
        self.open: dict[str, list[str]] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.trouble: Exception | None = None

    async def start_run(self, job: str, fire_key: str) -> str:
        if self.trouble is not None:
            raise self.trouble
        run = f"{job} {fire_key}"
        if run not in self.started:
            self.started.append(run)
            self.open.setdefault(job, []).insert(0, run)
        return run

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        return {job: list(self.open[job]) for job in jobs if self.open.get(job)}

    async def stop_run(self, run: str, reason: str) -> None:
        assert reason
        self.stopped.append(run)
        self.end(run)

    def end(self, run: str) -> None:
        self.open[run.split(maxsplit=1)[0]].remove(run)


class Desk:
    """A center, its clock and its store."""

    def __init__(self, store: SqlStore, clock: ManualClock, runs: Runs) -> None:
        self.store, self.clock, self.runs = store, clock, runs
        self.warnings: list[str] = []
        #: Seconds that fires wait for agents.
        self.agents_wait = 0.0
        self.firing = self.center("c1")

    def center(self, name: str) -> Firing:
        return Firing(
            self.store.fires,
            self.runs,
            self.clock,
            name,
            agents_wait=lambda: self.agents_wait,
            warn=self._warn,
        )

    async def _warn(self, detail: str) -> None:
        self.warnings.append(detail)

    async def plan(self, job: str = "job", **words: Any) -> None:
        schedule = Schedule(**({"every": 60} | words))
        await self.store.fires.plan(planned_from(job, schedule, self.clock.now()))

    async def after(self, seconds: float) -> list[str]:
        """The newest outcomes of the job after a step so much later, oldest first."""
        self.clock.advance(seconds)
        await self.firing.step()
        return await self.outcomes()

    async def fires(self, job: str = "job") -> list[Fire]:
        return (await self.store.fires.of_job(job, 1000))[::-1]

    async def outcomes(self, job: str = "job") -> list[str]:
        return [str(fire.state) for fire in await self.fires(job)]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    store = SqlStore("sqlite://", inline=True)
    await store.open()
    yield Desk(store, ManualClock(START + 1.0), Runs())
    await store.close()


def verdicts(ages: Sequence[float], busy: Any = None, more: Any = False, **words: Any) -> str:
    """Of due times that are this many seconds old, in short."""
    dues = [Due(int(START - age), START - age) for age in ages]
    decided = decide(Schedule(every=1, **words), dues, START, busy or Busy(), more=more)
    assert [verdict.due for verdict in decided] == [due.at for due in dues], "one for each"
    assert all(verdict.reason or verdict.state == FireState.CLAIMED for verdict in decided)
    return " ".join(NAMES.get(verdict.state, str(verdict.state)) for verdict in decided)


class TestPolicies:
    def test_catch_up(self) -> None:
        """Fault 33: after downtime as the policy says, and every due time is accounted for."""
        parallel: dict[str, Any] = {"overlap": Overlap.PARALLEL}
        old = [300, 240, 180]
        assert verdicts(old, catch_up=CatchUp.SKIP, **parallel) == "missed missed missed"
        assert verdicts(old, catch_up=CatchUp.ONE, **parallel) == "coalesced coalesced open"
        assert verdicts(old, catch_up=CatchUp.ALL, **parallel) == "open open open"

    def test_catch_up_into_one_that_is_in_time(self) -> None:
        parallel: dict[str, Any] = {"overlap": Overlap.PARALLEL}
        assert verdicts([300, 90, 30], catch_up=CatchUp.SKIP, **parallel) == "missed missed open"
        assert verdicts([300, 90, 30], catch_up=CatchUp.ONE, **parallel) == (
            "coalesced coalesced open"
        )
        assert verdicts([90, 30, 0], catch_up=CatchUp.ONE, **parallel) == "coalesced open open"

    def test_one_of_many_pages_is_the_last_of_the_last(self) -> None:
        assert verdicts([300, 240], more=True, catch_up=CatchUp.ONE) == "coalesced coalesced"

    def test_grace(self) -> None:
        assert verdicts([60], catch_up=CatchUp.SKIP) == "open"
        assert verdicts([61], catch_up=CatchUp.SKIP) == "missed"
        assert verdicts([61], catch_up=CatchUp.SKIP, grace=61.0) == "open"

    def test_overlap(self) -> None:
        three, busy = [2, 1, 0], Busy("run x")
        assert verdicts(three, overlap=Overlap.SKIP) == "open skipped skipped"
        assert verdicts(three, busy, overlap=Overlap.SKIP) == "skipped skipped skipped"
        assert verdicts(three, overlap=Overlap.QUEUE) == "open queued queued"
        assert verdicts(three, busy, overlap=Overlap.QUEUE) == "queued queued queued"
        assert verdicts(three, busy, overlap=Overlap.REPLACE) == "coalesced coalesced open"
        assert verdicts(three, busy, overlap=Overlap.PARALLEL) == "open open open"

    def test_a_queue_has_an_end(self) -> None:
        busy = Busy("run x", queued=8)
        words: dict[str, Any] = {"overlap": Overlap.QUEUE, "queue_limit": 10}
        assert verdicts([3, 2, 1], busy, **words) == "queued queued skipped"


class TestFiring:
    async def test_it_fires_when_it_is_due_and_once(self, desk: Desk) -> None:
        await desk.plan()
        assert await desk.after(58.0) == []
        assert await desk.after(1.0) == ["fired"]
        assert await desk.after(0.0) == ["fired"]
        (fire,) = await desk.fires()
        assert (fire.due_at, fire.center, fire.run) == (START + 60, "c1", f"job {fire.key}")
        assert (fire.key, fire.ended_at) == ("2027-01-15T08:01:00Z", START + 60.0)

    async def test_jitter_puts_off_and_keeps_the_order(self, desk: Desk) -> None:
        await desk.plan(every=10, jitter=60.0, overlap=Overlap.PARALLEL, grace=600.0)
        for _ in range(200):
            await desk.after(1.0)
        fires = await desk.fires()
        assert len(fires) > 12
        assert [fire.due_at for fire in fires] == list(range(START + 10, fires[-1].due_at + 1, 10))
        delays = [fire.ended_at - fire.due_at for fire in fires]
        assert max(delays) <= 61
        assert len({round(delay) for delay in delays}) > 5

    async def test_two_hours_down(self, desk: Desk) -> None:
        """Fault 33."""
        for policy in CatchUp:
            await desk.plan(str(policy), catch_up=policy, overlap=Overlap.PARALLEL)
        await desk.after(7259.0)
        found = {policy: await desk.outcomes(str(policy)) for policy in CatchUp}
        assert found[CatchUp.SKIP] == ["missed"] * 119 + ["fired"] * 2
        assert found[CatchUp.ONE] == ["coalesced"] * 119 + ["fired"] * 2
        assert found[CatchUp.ALL] == ["late"] * 119 + ["fired"] * 2

    async def test_a_long_sleep_is_worked_off_in_parts(self, desk: Desk) -> None:
        await desk.plan(every=1, overlap=Overlap.PARALLEL, catch_up=CatchUp.ONE)
        for _ in range(4):
            await desk.after(0.0)
        desk.clock.advance(3500.0)
        for _ in range(5):
            await desk.firing.step()
        rows = await desk.store.fires.of_job("job", 5000)
        states = [str(fire.state) for fire in rows[::-1]]
        assert states == ["coalesced"] * 3439 + ["fired"] * 61

    async def test_skip(self, desk: Desk) -> None:
        await desk.plan(overlap=Overlap.SKIP)
        assert await desk.after(59.0) == ["fired"]
        assert await desk.after(60.0) == ["fired", "skipped"]
        assert "was still active" in (await desk.fires())[-1].reason
        desk.runs.end(desk.runs.started[0])
        assert await desk.after(60.0) == ["fired", "skipped", "fired"]

    async def test_queue(self, desk: Desk) -> None:
        await desk.plan(overlap=Overlap.QUEUE, queue_limit=2)
        await desk.after(59.0)
        for _ in range(3):
            await desk.after(60.0)
        assert await desk.outcomes() == ["fired", "queued", "queued", "skipped"]
        desk.runs.end(desk.runs.started[0])
        assert await desk.after(1.0) == ["fired", "late", "queued", "skipped"]
        assert await desk.after(1.0) == ["fired", "late", "queued", "skipped"], "one at a time"
        assert (await desk.fires())[1].reason.startswith("waited: run job")

    async def test_replace(self, desk: Desk) -> None:
        await desk.plan(overlap=Overlap.REPLACE)
        await desk.after(59.0)
        assert await desk.after(60.0) == ["fired", "fired"]
        assert desk.runs.stopped == desk.runs.started[:1]
        assert desk.runs.open["job"] == desk.runs.started[1:]

    async def test_a_store_that_is_away_leaves_the_fire_to_be_taken_over(self, desk: Desk) -> None:
        await desk.plan()
        desk.runs.trouble = StoreDown("away")
        assert await desk.after(59.0) == ["claimed"]
        desk.runs.trouble = None
        assert await desk.after(PATIENCE - 1) == ["claimed"]
        assert await desk.after(2.0) == ["fired"]
        (fire,) = await desk.fires()
        assert fire.reason == "taken over from c1"

    async def test_a_job_that_cannot_run_is_skipped_with_its_reason(self, desk: Desk) -> None:
        await desk.plan()
        desk.runs.trouble = Conflict("job is disabled")
        assert await desk.after(59.0) == ["skipped"]
        assert (await desk.fires())[0].reason == "job is disabled"

    async def test_b_runs_when_a_succeeded(self, desk: Desk) -> None:
        """Job chains, under the overlap policy of the follower."""
        await desk.plan("b", every=None, after=("a",), overlap=Overlap.QUEUE)
        for run in ("r1", "r1", "r2"):
            await desk.store.fires.succeeded("a", run, desk.clock.now())
        await desk.after(1.0)
        assert await desk.outcomes("b") == ["fired", "queued"]
        desk.runs.end("b after:r1")
        await desk.after(1.0)
        assert await desk.outcomes("b") == ["fired", "fired"]
        assert desk.runs.started == ["b after:r1", "b after:r2"]

    async def test_a_zone_that_is_gone_does_not_stop_the_others(self, desk: Desk) -> None:
        await desk.plan("good")
        lost = planned_from("lost", Schedule(every=60), desk.clock.now())
        unknown = Schedule(cron="* * * * *", zone="Europe/Atlantis")
        await desk.store.fires.plan(type(lost)("lost", unknown, lost.decided, lost.next_at))
        await desk.after(59.0)
        assert await desk.outcomes("good") == ["fired"]
        assert await desk.outcomes("lost") == []


class TestClocks:
    async def test_a_step_forward_that_is_taken_back_fires_nothing(self, desk: Desk) -> None:
        """Fault 31."""
        await desk.plan()
        desk.clock.set_wall(START + 86_400.0)
        assert await desk.after(5.0) == []
        desk.clock.set_wall(START + 6.0)
        assert await desk.after(HOLD + 1) == []
        assert await desk.after(60.0 - HOLD - 1) == ["fired"]

    async def test_a_step_forward_that_stays_is_caught_up(self, desk: Desk) -> None:
        await desk.plan(catch_up=CatchUp.ONE)
        desk.clock.set_wall(START + 3601.0)
        assert await desk.after(1.0) == []
        assert await desk.after(HOLD) == ["coalesced"] * 59 + ["fired"]

    async def test_a_step_back_fires_nothing_again(self, desk: Desk) -> None:
        await desk.plan(overlap=Overlap.PARALLEL)
        for _ in range(5):
            await desk.after(60.0)
        desk.clock.set_wall(START + 61.0)
        for _ in range(4):
            assert await desk.after(60.0) == ["fired"] * 5
        assert await desk.after(60.0) == ["fired"] * 6

    @pytest.mark.parametrize("catch_up", list(CatchUp))
    async def test_a_clock_that_was_a_day_ahead_silences_nothing(
        self, desk: Desk, catch_up: CatchUp
    ) -> None:
        """R8: the plan follows the clock back, with an alert. What was started early is not
        started again."""
        await desk.plan(catch_up=catch_up, overlap=Overlap.PARALLEL)
        await desk.after(60.0)
        desk.clock.set_wall(START + 86_461.0)
        await desk.after(1.0)
        await desk.after(HOLD + 5)
        early = len(desk.runs.started)
        desk.clock.set_wall(desk.clock.now() - 86_400.0)
        await desk.after(1.0)
        await desk.after(HOLD + 1)
        assert len(desk.warnings) == 1
        assert "ahead of this center's clock" in desk.warnings[0]
        for _ in range(5):
            await desk.after(60.0)
        if catch_up is not CatchUp.ALL:
            assert len(desk.runs.started) == early + 5
        assert len(desk.runs.started) == len(set(desk.runs.started))
        assert len(desk.warnings) == 1

    async def test_a_plan_of_another_center_whose_clock_was_ahead(self, desk: Desk) -> None:
        """R8: the center with the wrong clock is gone; another one, or a restart, notices."""
        await desk.plan(overlap=Overlap.PARALLEL)
        desk.clock.set_wall(START + 86_400.0)
        await desk.center("wrong").step()
        desk.clock.set_wall(START + 1.0)
        assert await desk.center("restarted").step() == 0
        assert len(desk.warnings) == 1
        await desk.after(60.0)
        await desk.after(HOLD + 60.0)
        first = next(fire.due_at for fire in await desk.fires() if fire.run)
        assert first < START + 200

    async def test_a_schedule_that_is_changed_after_a_step_back(self, desk: Desk) -> None:
        await desk.plan(overlap=Overlap.PARALLEL)
        for _ in range(5):
            await desk.after(60.0)
        desk.clock.set_wall(START + 1.0)
        await desk.plan(overlap=Overlap.SKIP)
        for _ in range(8):
            await desk.after(60.0)
        fires = await desk.fires()
        assert len(fires) == len({fire.due_at for fire in fires}) == 8
        assert len(desk.runs.started) == len(set(desk.runs.started))


class TestAgents:
    async def test_a_fire_waits_for_its_agents(self, desk: Desk) -> None:
        """E3: as a run does (C4); it is started within a step of the agents' return, and no
        other center takes it over meanwhile."""
        desk.agents_wait = 3 * PATIENCE
        await desk.plan(overlap=Overlap.PARALLEL)
        desk.runs.trouble = NotEnoughAgents("1 agent is needed")
        other = desk.center("c2")
        assert await desk.after(60.0) == ["claimed"]
        for _ in range(int(2 * PATIENCE)):
            assert await desk.after(1.0) == ["claimed"]
            await other.step()
        (fire,) = await desk.fires()
        assert fire.center == "c1"
        desk.runs.trouble = None
        assert (await desk.after(1.0))[0] == "fired"
        assert len(desk.runs.started) == 1

    async def test_it_waits_no_longer_than_that(self, desk: Desk) -> None:
        """E3: a job that cannot have its agents does not start, and the reason is kept."""
        desk.agents_wait = 5.0
        await desk.plan(overlap=Overlap.PARALLEL)
        desk.runs.trouble = NotEnoughAgents("1 agent is needed")
        assert await desk.after(60.0) == ["claimed"]
        assert await desk.after(6.0) == ["skipped"]
        assert (await desk.fires())[0].reason == "1 agent is needed"
        assert await desk.after(60.0) == ["skipped", "claimed"]
