"""The benches of fleets count as they say, and their simulation behaves as queues do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import capacity
from bench.capacity import Costs
from bench.children.fleet import in_ms
from bench.figures import percentile
from skep.center.services import HEARTBEATS_EVERY


def test_percentiles_are_samples() -> None:
    samples = [number / 1000 for number in range(1, 101)]
    assert in_ms(samples) == {"p50": 51.0, "p90": 91.0, "p99": 100.0, "max": 100.0}
    assert percentile([], 0.5) == 0.0


def test_a_seed_replays_and_a_busier_center_is_slower() -> None:
    few = capacity.simulate(100, 1000, Costs(), seed=1)
    assert few == capacity.simulate(100, 1000, Costs(), seed=1)
    many = capacity.simulate(1500, 1500, Costs(), seed=1)
    assert many.busy > few.busy
    assert many.p99_ms > few.p99_ms


def test_beats_share_writes() -> None:
    """However many agents there are, there are no more writes than one in 60 ms."""
    center = capacity.simulate(1000, 1000, replace(Costs(), beat=1e-5), seed=1)
    assert center.writes_per_second <= 1 / HEARTBEATS_EVERY + 1


def test_twice_the_fleet_needs_more_centers_and_an_impossible_one_none() -> None:
    small, large = capacity.centers_for(1000, Costs(), 1), capacity.centers_for(2000, Costs(), 1)
    assert small is not None
    assert large is not None
    assert large[0] > small[0]
    assert capacity.centers_for(1000, replace(Costs(), idle=0.9), 1) is None
    assert capacity.line_of(1000, replace(Costs(), idle=0.9), 1)["centers"] == 0


@pytest.mark.parametrize(
    ("agents", "centers", "seconds"), [(1000, 2, 1.0), (10_000, 20, 1.0), (100_000, 200, 20.0)]
)
def test_larger_fleets_are_looked_at_less_often(agents: int, centers: int, seconds: float) -> None:
    costs = replace(Costs(), scan=5e-7)
    assert capacity.sweep_every(agents, centers, costs) == pytest.approx(seconds)
