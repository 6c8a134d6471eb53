"""The self-check of a center: planted differences are seen twice, repaired, counted, shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from skep.center.self_check import SelfCheck
from skep.runtime.repair_counts import Repairs
from skep.store.ports.self_checks import StoreCheck
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.self_checks import KINDS, plant
from skep.testing.doubles.manual_agents import PLACING, ManualAgent, fill, open_run
from skep.testing.grounds.centers import RunningCenter, running_center, two_centers
from skep.testing.polling import until

QUICK = {**PLACING, "center_self_check_every": 0.1, "lanes_reconcile_every": 0.1}
GROUP = {"strategy": "any", "group": "default"}
#: Two kinds plant a run of the same name.
APART = [kind for kind in KINDS if kind != "allocations"]
#: The center's own loop would release the allocation before the self-check sees it.
SLOW_SWEEP = {**QUICK, "center_sweep_every": 60.0}


async def repaired(center: RunningCenter) -> dict[str, int]:
    answer = (await center.admin.get("/api/v1/repairs")).json()
    return {line["kind"]: line["repaired"] for line in answer["items"] if line["repaired"]}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_planted_difference_is_repaired(tmp_path: Path, kind: StoreCheck) -> None:
    """Issue 10, point 3: one test per kind; counted once, logged once, shown by metric."""
    async with running_center(tmp_path, **SLOW_SWEEP) as center:
        center.planted = True
        await plant(center.services.store, kind)

        async def done() -> bool:
            return await repaired(center) == {kind: 1}

        await until(done)
        text = (await center.anyone.get("/metrics")).content.decode()
        assert f'skep_repairs_total{{kind="{kind}"}} 1.0' in text
        assert (await center.services.store.checks.find(kind, "", 10))[0] == []


async def test_two_centers_that_start_one_after_the_other_repair_nothing_that_is_right(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """Issue 10, bad input: a rolling start of two centers, with work of both in flight."""
    async with two_centers(tmp_path, shared, **QUICK) as (one, two):
        hand = await ManualAgent(one, "a").start()
        other = await ManualAgent(two, "b").start()
        for number in range(3):
            run = f"r{number}"
            center = (one, two)[number % 2]
            assert (await open_run(center, run, GROUP)).status == 200
            await fill(center, run, 20)
            for each in (hand, other):
                for block in await each.lease(want=2):
                    await each.finish(block)
            assert (await center.admin.post(f"/api/v1/runs/{run}/finish")).status == 200
        await hand.die()
        await other.die()
        assert await repaired(one) == await repaired(two) == {}
        await one.ledger()


async def test_two_centers_repair_every_kind_once(tmp_path: Path, shared: dict[str, str]) -> None:
    """Issue 10, point 3: on PostgreSQL and Redis, with one difference of each kind: both centers
    look, and each difference is counted by one of them."""
    async with two_centers(tmp_path, shared, **SLOW_SWEEP) as (one, two):
        one.planted = two.planted = True
        planted = [await plant(one.services.store, kind) for kind in APART]
        assert all(planted)

        async def done() -> bool:
            counts = Counter(await repaired(one))
            counts.update(await repaired(two))
            assert max(counts.values(), default=0) <= 1, counts
            return set(counts) == set(APART)

        await until(done, seconds=30.0)
        for kind in KINDS:
            assert (await one.services.store.checks.find(kind, "", 10))[0] == []


async def test_a_test_that_leaves_a_difference_fails(tmp_path: Path) -> None:
    """Issue 10, point 3: every fixture with a center ends with these questions."""
    with pytest.raises(AssertionError, match=r"records that differ: .*holds"):
        async with running_center(tmp_path / "left", center_self_check_every=600.0) as center:
            await plant(center.services.store, "holds")
    with pytest.raises(AssertionError, match=r"repaired: .*lanes"):
        async with running_center(tmp_path / "repaired") as center:
            center.services.repairs.repaired("lanes", 1, "an entry")


async def test_what_is_seen_once_is_work_in_flight(tmp_path: Path) -> None:
    """Issue 10, point 3: a difference that is gone at the next look is not counted, and an
    empty store has none."""
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await store.open()
    try:
        repairs, moments = Repairs(), list[list[str]]()

        async def withdraw(numbers: list[str]) -> None:
            moments.append(numbers)

        check = SelfCheck(store, ManualClock(), repairs, withdraw, limit=2, apart=0.0)
        await check.step()
        assert not repairs.done
        name = await plant(store, "allocations")
        await check.step()
        assert (repairs.open["allocations"], repairs.done["allocations"]) == (1, 0)
        await store.checks.repair("allocations", [name], 1.0)  # another center was faster
        await check.step()
        assert not repairs.done
        assert repairs.open["allocations"] == 0
        await plant(store, "segments")
        await check.step()
        await check.step()
        assert repairs.done == {"segments": 1}
        await check.step()
        assert repairs.done == {"segments": 1}
    finally:
        await store.close()
