"""The simulation of polling: worlds have the rates they promise, and the result is judged."""

from __future__ import annotations

from random import Random

import pytest

from bench.mirrors import polling
from bench.mirrors.push_worlds import DAY, WORLDS, rates


@pytest.mark.parametrize("world", WORLDS)
def test_a_world_has_its_long_run_rate(world: str) -> None:
    random = Random(1)
    many = [WORLDS[world](0.5, random, 0.0, 500 * DAY) for _ in range(200)]
    assert sum(map(len, many)) / 500 / 200 == pytest.approx(0.5, rel=0.03)
    times = many[0]
    assert times == sorted(times)


def test_rates_are_log_normal() -> None:
    found = sorted(rates(1001, Random(1)))
    assert found[500] == pytest.approx(0.05)
    assert found[841] == pytest.approx(0.05 * 2.718**2.3, rel=0.05)


@pytest.mark.parametrize("world", WORLDS)
def test_a_small_fleet_beats_uniform_polling_and_keeps_the_budget(world: str) -> None:
    """M3: the interval adapts to activity, within a rate limit."""
    found = polling.cell(world, 5000, count=150, days=4, seed=1)
    assert found["ratio"] < 0.6
    assert found["to_oracle"] < 1.4
    assert found["budget_used"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("changed", "ok"),
    [({}, True), ({"ratio": 0.34}, False), ({"to_oracle": 1.3}, False), ({"budget_used": 0.97}, 0)],
)
def test_every_bar_counts(changed: dict[str, float], ok: bool) -> None:
    good = {"minutes": 5.0, "uniform_minutes": 20.0, "oracle_minutes": 5.0}
    good |= {"ratio": 0.25, "to_oracle": 1.0, "budget_used": 1.0}
    assert polling.judged({"one": good, "other": good | changed}, 10).ok is bool(ok)
