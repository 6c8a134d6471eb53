"""Latency histograms."""

from __future__ import annotations

from random import Random

import pytest

from skep.monitoring.latency import LIMITS_US, counts_of, interval_of, quantile


def test_intervals_have_their_upper_limit() -> None:
    assert interval_of(0) == 0
    assert [interval_of(limit) for limit in LIMITS_US] == list(range(len(LIMITS_US)))
    assert interval_of(2**63) == len(LIMITS_US)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_quantile_is_in_the_right_interval(share: float) -> None:
    rng = Random(4)
    values = sorted(int(rng.lognormvariate(12, 1)) for _ in range(5000))
    counts = [0.0] * (len(LIMITS_US) + 1)
    for value in values:
        counts[interval_of(value)] += 1
    found = quantile(counts, share)
    assert found is not None
    exact = values[int(share * len(values))]
    assert abs(interval_of(int(found * 1e6)) - interval_of(exact)) <= 1


def test_no_duration_has_no_quantile_and_the_longest_has_a_limit() -> None:
    assert quantile([0.0] * 14, 0.5) is None
    assert quantile([0.0] * 13 + [5.0], 0.5) == LIMITS_US[-1] / 1e6


def test_labels_that_are_no_interval_are_ignored() -> None:
    found = counts_of({"0": (2.0, 1), "13": (1.0, 1), "99": (5.0, 1), "x": (1.0, 1), "²": (1.0, 1)})
    assert (found[0], found[13], sum(found)) == (2.0, 1.0, 3.0)
