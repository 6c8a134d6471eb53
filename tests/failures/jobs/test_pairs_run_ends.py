"""Pairs of features: however a run ends, wherever its blocks are, nothing of it is left.

{placement} x {end} x {where the blocks are} x {bus} = 200 combinations, generated. All of them
run in `make faults`, a selection with every pair of values in `make test`. Combinations of one
bus share a center.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from skep.agent.agent_folder import AgentFolder
from skep.testing.fleet import tell
from skep.testing.grounds.centers import running_center
from skep.testing.grounds.pairwise import all_combinations, pairs_of, pairwise
from skep.testing.grounds.run_ends import BUSES, ENDS, PLACEMENTS, PLACES, SETTINGS, Ground

AXES = (tuple(PLACEMENTS), ENDS, PLACES, BUSES)
MATRIX = all_combinations(*AXES)


async def _try(
    request: pytest.FixtureRequest, folder: Path, bus: str, chosen: list[tuple[str, ...]]
) -> None:
    spiders = folder / "spiders"
    spiders.mkdir()
    flags = {**SETTINGS, "jobs_folder": str(spiders)}
    if bus == "redis":
        flags["bus_url"] = request.getfixturevalue("redis_url")
    failed = 0
    async with running_center(folder, **flags) as center:
        ground = Ground(center, AgentFolder(folder / "agent"), spiders)
        await ground.open()
        try:
            for placement, end, place, _ in chosen:
                began, result = time.monotonic(), "passed"
                try:
                    await ground.combination(placement, end, place)
                except (AssertionError, TimeoutError) as error:
                    result, failed = f"failed ({type(error).__name__}: {error})"[:200], failed + 1
                took = time.monotonic() - began
                tell("76", pair=f"{placement}/{end}/{place}/{bus}", result=result, seconds=took)
            await center.ledger()
        finally:
            await ground.close()
    tell("76", combinations=len(chosen), failed=failed)
    assert failed == 0


def test_the_matrix_has_every_combination_and_the_selection_every_pair() -> None:
    assert len(MATRIX) == len(set(MATRIX)) == 200
    chosen = set().union(*map(pairs_of, pairwise(*AXES)))
    assert chosen == set().union(*map(pairs_of, MATRIX))


@pytest.mark.slow
@pytest.mark.parametrize("bus", BUSES)
async def test_every_end_of_a_run(request: pytest.FixtureRequest, tmp_path: Path, bus: str) -> None:
    """Fault 76, E1, E7: all combinations."""
    await _try(request, tmp_path, bus, [one for one in MATRIX if one[3] == bus])


@pytest.mark.parametrize("bus", BUSES)
async def test_every_pair_of_values(
    request: pytest.FixtureRequest, tmp_path: Path, bus: str
) -> None:
    """Fault 76, E1, E7: a selection in which every pair of values occurs."""
    await _try(request, tmp_path, bus, [one for one in pairwise(*AXES) if one[3] == bus])
