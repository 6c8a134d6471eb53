"""The state machine of alerts: duration, hysteresis, clocks that are set."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from skep.model.monitoring.alerts import AlertRule
from skep.monitoring.rule_state import GAP, Phase, advance, problem_of

RULE = AlertRule("failure_rate", 0.5, clear=0.3, duration=60.0, clear_duration=30.0)


def follow(rule: AlertRule, values: Sequence[float | None], every: float = 10.0) -> list[str]:
    changes: list[str] = []
    phase, now = Phase(), 1000.0
    for value in values:
        phase, change = advance(rule, phase, value, now)
        changes.append(change)
        now += every
    return changes


def test_it_fires_after_its_duration_and_once() -> None:
    found = follow(RULE, [0.6] * 20)
    assert found.index("firing") == 6
    assert found.count("firing") == 1


def test_a_short_peak_does_not_fire() -> None:
    assert set(follow(RULE, [0.6] * 6 + [0.1] + [0.6] * 6)) == {""}


def test_it_ends_below_the_lower_limit_and_after_its_duration() -> None:
    values = [0.6] * 7 + [0.4] * 20 + [0.2] * 2 + [0.4] + [0.2] * 10
    found = follow(RULE, values)
    assert found.index("resolved") == 7 + 20 + 3 + 3


def test_values_around_the_threshold_do_not_flap() -> None:
    rng = Random(1)
    found = follow(RULE, [0.5 + rng.uniform(-0.15, 0.15) for _ in range(2000)])
    assert [change for change in found if change] in ([], ["firing"])


def test_a_subject_that_is_gone_ends_its_alert() -> None:
    found = follow(RULE, [0.9] * 7 + [None] * 4)
    assert found[-1] == "resolved"


def test_below() -> None:
    rule = AlertRule("disk_free", 100.0, when="below", clear=200.0)
    assert follow(rule, [150, 100, 150, 199, 200]) == ["", "firing", "", "", "resolved"]


@pytest.mark.parametrize("jump", [-1e9, -3600.0, -1.0, 3600.0, 1e9])
def test_a_clock_that_is_set_neither_fires_nor_ends(jump: float) -> None:
    phase, change = advance(RULE, Phase("pending", 0.0, 1000.0), 0.9, 1000.0 + jump)
    rule = replace(RULE, duration=GAP + 1)
    phase, change = advance(rule, Phase("pending", 0.0, 1000.0), 0.9, 1000.0 + jump)
    assert (phase.state, change) == ("pending", "")
    assert phase.held <= GAP
    rule = replace(RULE, clear_duration=GAP + 1)
    phase, change = advance(rule, Phase("ending", 0.0, 1000.0), 0.0, 1000.0 + jump)
    assert (phase.state, change) == ("ending", "")


def test_limits_the_wrong_way_round_are_named() -> None:
    assert "at or below" in problem_of(AlertRule("failure_rate", 0.5, clear=0.6))
    assert "at or above" in problem_of(AlertRule("disk_free", 5, when="below", clear=1))
    assert problem_of(RULE) == ""
