"""Built-in rules, and rules that cannot work."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from skep.model.monitoring.alerts import AlertRule
from skep.monitoring.rules import BUILTIN, in_force, problem_of


def test_built_in_rules_can_work_and_can_be_changed() -> None:
    assert [problem_of(name, rule) for name, rule in BUILTIN.items()] == [""] * len(BUILTIN)
    changed = replace(BUILTIN["disk_free"], threshold=1.0)
    found = {one.name: one for one in in_force({"disk_free": changed, "own": changed})}
    assert (found["disk_free"].rule, found["disk_free"].changed) == (changed, True)
    assert (found["own"].builtin, found["own"].changed) == (False, False)
    assert not found["stale_run"].changed


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    """JSON has no such number, but a packed message has."""
    assert "finite" in problem_of("x", AlertRule("failure_rate", number))
    assert "finite" in problem_of("x", AlertRule("failure_rate", 1.0, window=number))
