"""Runs of jobs, simulated: ends, allocations, frozen centers, tokens and sinks (C4, C9, R2).

The mutants at the end prove that the simulation can fail: each takes one safeguard away.
"""

from __future__ import annotations

from typing import Any

import pytest

from skep.center.http.authentication import DriverPasses
from skep.lanes import reconcile_lanes
from skep.store.sql.records.deliveries import SqlDeliveries
from skep.testing.fleet import tell
from skep.testing.simulation.runs import ENDS, Broken, RunsPlan, simulate

SMALL = RunsPlan(
    runs=6, storm_seconds=30.0, calm_runs=6, pages=60, freeze_every=5.0, kill_every=15.0
)
#: Frozen centers, and nothing else that could go wrong.
FROZEN = RunsPlan(
    runs=4, storm_seconds=30.0, calm_runs=0, pages=90, freeze_every=4.0, kill_every=1e6, outage=0.0
)
#: No fault at all.
CALM = RunsPlan(runs=0, storm_seconds=1.0, calm_runs=6, pages=60, freeze_every=1e6, kill_every=1e6)


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4))]
)
def test_runs_end_and_leave_nothing_behind(seed: int) -> None:
    """Faults 15, 26, 27, 30, 76, E1, E2, E4, E5, E7: every end of a run, on every placement, while
    centers freeze past their leases and die."""
    result = simulate(seed, SMALL)
    figures = {"items": result.items, "repeated": result.repeated, "repairs": result.repairs}
    tell("30", freezes=result.freezes, kills=result.kills, **figures)
    assert set(result.ends) == set(ENDS)
    assert result.freezes > 1


def caught(plan: RunsPlan, seeds: range) -> str:
    for seed in seeds:
        try:
            simulate(seed, plan)
        except Broken as broken:
            return str(broken)
    return ""


def test_entries_that_stay_in_lanes_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant, E1: the end of a run removes nothing from the lanes."""

    async def nothing(*_: Any) -> int:
        return 0

    monkeypatch.setattr(reconcile_lanes, "_remove_all", nothing)
    assert "repaired" in caught(CALM, range(1, 4))


def test_a_thawed_center_that_revokes_foreign_tokens_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutant, E2: who lets go of a run revokes every token of it."""
    withdraw = DriverPasses.withdraw

    async def everything(self: DriverPasses, run: str, _token: str = "") -> None:
        await withdraw(self, run)

    monkeypatch.setattr(DriverPasses, "withdraw", everything)
    assert "has failed" in caught(FROZEN, range(1, 6))


def test_positions_that_are_not_stored_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant, E5: who takes a delivery over begins it again."""

    async def forget(*_: Any) -> None:
        return None

    monkeypatch.setattr(SqlDeliveries, "save", forget)
    assert "records again" in caught(FROZEN, range(1, 6))
