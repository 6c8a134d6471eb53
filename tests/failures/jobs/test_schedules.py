"""Schedules under faults: killed centers, frozen centers, wrong clocks (faults 31, 32, 33).

The mutants at the end prove that the simulation can fail: each takes one safeguard away.
"""

from __future__ import annotations

from typing import Any

import pytest

from skep.jobs.schedule.firing import Firing
from skep.testing.fleet import tell
from skep.testing.simulation.firing_centers import FiringPlan, SimRuns
from skep.testing.simulation.schedules import Broken, simulate

SMALL = FiringPlan(jobs=40, hours=0.25, kill_every=10.0)


def test_a_center_is_killed_every_30_seconds() -> None:
    """Fault 32, in small."""
    result = simulate(1, FiringPlan(jobs=100, hours=0.3))
    tell("32", kills=result.kills, due=result.due, missed=result.missed, doubled=result.doubled)
    assert (result.missed, result.doubled) == (0, 0)
    assert result.ran == result.due == 100 * 18
    assert result.kills == 36


@pytest.mark.slow
def test_a_thousand_jobs_each_minute_for_ten_hours() -> None:
    """Fault 32, E11: in full, as `python -m skep.testing.simulation.schedules` runs it."""
    result = simulate(1, FiringPlan())
    figures = {"missed": result.missed, "doubled": result.doubled}
    figures |= {"taken_over": result.taken_over, "passed_over": result.passed_over}
    tell("32", kills=result.kills, due=result.due, **figures)
    assert (result.missed, result.doubled) == (0, 0)
    assert result.ran + result.passed_over == result.due == 1000 * 600
    assert result.passed_over < 10, "seldom: a late take-over, and a long run after it"
    assert result.kills == 1200


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_in_the_middle_of_their_work(seed: int) -> None:
    """Fault 32: a crash between claim, run and outcome neither loses nor doubles a fire."""
    result = simulate(seed, SMALL)
    assert result.ran == result.due
    assert result.struck_at_work > 20


def test_frozen_centers_wake_into_a_world_that_went_on() -> None:
    """SIGSTOP in the middle of a step: others take over, and the sleeper does no harm."""
    result = simulate(4, FiringPlan(jobs=40, hours=0.25, freeze_every=15.0))
    assert result.taken_over > 10
    assert result.opened_again > 0


def test_wrong_clocks_neither_double_nor_lose() -> None:
    """Fault 31: clocks of centers are set by up to half an hour, forward and back."""
    result = simulate(5, FiringPlan(jobs=30, hours=0.5, clock_every=90.0, freeze_every=60.0))
    tell("31", clocks_set=result.clock_steps, due=result.due, doubled=result.doubled)
    assert result.clock_steps > 10
    assert result.due == sum(result.outcomes.values())


def test_a_seed_replays_exactly() -> None:
    first, second = (
        simulate(6, FiringPlan(jobs=10, hours=0.1, freeze_every=20.0)) for _ in range(2)
    )
    first.wall_seconds = second.wall_seconds = 0.0
    assert first == second


def test_centers_that_take_nothing_over_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what a dead center had claimed stays claimed."""

    async def nothing(_self: Firing, _left: Any) -> list[Any]:
        return []

    monkeypatch.setattr(Firing, "_adopt", nothing)
    with pytest.raises(Broken, match="missed"):
        simulate(1, SMALL)


def test_runs_that_are_not_opened_once_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: who takes over opens another run instead of the same."""

    async def another(self: SimRuns, job: str, fire_key: str) -> str:
        self.create(job, fire_key)
        return "run"

    monkeypatch.setattr(SimRuns, "start_run", another)
    with pytest.raises(Broken, match="doubled"):
        simulate(1, FiringPlan(jobs=40, hours=0.25, freeze_every=15.0))
