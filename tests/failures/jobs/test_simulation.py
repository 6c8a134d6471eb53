"""Several centers and agents, simulated: nothing is lost whatever breaks (C6, C7, C9, D5).

The mutants at the end prove that the simulation can fail: each takes one safeguard away.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from sqlalchemy.exc import IntegrityError

from skep.store.sql.blocks import reclaim, settle
from skep.testing.simulation.scenario import LedgerBroken, ScenarioPlan, simulate

SMALL = ScenarioPlan(requests=150, storm_seconds=100.0)


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 4, 5, 6))]
)
def test_nothing_is_lost_in_a_storm(seed: int) -> None:
    """Faults 6, 15, 22, 23, 26, 27, 29, 30 at once: crashes, freezes, flushes, bad lines."""
    result = simulate(seed, SMALL)
    assert result.ledger.accepted == SMALL.requests
    assert result.ledger.done + result.ledger.dead == SMALL.requests
    assert result.crashes > 5
    assert result.messages_lost > 50


def test_a_seed_replays_exactly() -> None:
    """The same steps in another process with another hash seed: a failing seed is a proof."""
    first, second = (_outcome(hash_seed) for hash_seed in ("1", "2"))
    assert first == second


def _outcome(hash_seed: str) -> dict[str, Any]:
    code = (
        "import sys; from skep.testing.simulation.scenario import ScenarioPlan, as_json, simulate;"
        "plan = ScenarioPlan(requests=40, storm_seconds=20.0);"
        "sys.stdout.buffer.write(as_json(simulate(7, plan)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    )
    result: dict[str, Any] = msgspec.json.decode(done.stdout)
    del result["wall_seconds"]
    return result


def _caught(seeds: range) -> str:
    for seed in seeds:
        try:
            simulate(seed, SMALL)
        except (LedgerBroken, IntegrityError) as broken:
            return str(broken)
    return ""


@pytest.mark.slow
def test_a_center_that_ignores_fencing_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the holder of any lease of the block may write (faults 6, 30)."""
    monkeypatch.setattr(settle._Block, "holds", lambda *_: True)
    assert "wrote to block" in _caught(range(1, 10))


def test_a_reaper_that_forgets_a_tally_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: blocks come back, their requests are still counted as leased."""
    taken_back = reclaim.take_back

    def forgetful(tx: Any, *args: Any) -> Any:
        kept = tx.tallies.copy()
        freed = taken_back(tx, *args)
        tx.tallies.clear()
        tx.tallies.update(kept)
        return freed

    monkeypatch.setattr("skep.store.sql.blocks.blocks.take_back", forgetful)
    assert "counted" in _caught(range(1, 6))


def test_an_echo_that_is_stored_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: outcomes are not checked against what has ended already."""
    monkeypatch.setattr(settle, "_unseen", lambda _tx, _block, outcomes: outcomes)
    monkeypatch.setattr(settle, "_expect", lambda *_: None)
    assert _caught(range(1, 10))
