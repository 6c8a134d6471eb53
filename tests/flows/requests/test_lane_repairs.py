"""Lanes and store agree: runs that end leave the lanes, and differences are repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.embed.checks.examination import self_check
from skep.model.block import BlockRef
from skep.model.lane import Lane
from skep.model.states import RunState
from skep.testing.doubles.manual_agents import PLACING, ManualAgent, fill, joining, open_run
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.wire.api.center import RepairLine

GROUP = {"strategy": "any", "group": "default"}
FIXED = {"strategy": "fixed", "n": 1}
#: Two looks at the lanes come soon after each other.
QUICK = {**PLACING, "lanes_reconcile_every": 0.1, "lanes_low_limit": 40}


@pytest.fixture(params=["memory", "redis"])
async def center(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningCenter]:
    bus = {}
    if request.param == "redis":
        bus["bus_url"] = request.getfixturevalue("redis_url")
    async with running_center(tmp_path, **QUICK, **bus) as running:
        yield running


@pytest.fixture
async def fleet(center: RunningCenter) -> AsyncIterator[Callable[..., Awaitable[ManualAgent]]]:
    async with joining(center) as join:
        yield join


async def in_lanes(center: RunningCenter) -> set[int]:
    return await center.services.bus.lanes.ids()


async def repaired(center: RunningCenter) -> dict[str, int]:
    answer = (await center.admin.get("/api/v1/repairs")).json()
    return {line["kind"]: line["repaired"] for line in answer["items"] if line["repaired"]}


async def released(center: RunningCenter) -> bool:
    return not await center.services.store.allocations.open()


async def gets_through(center: RunningCenter, hand: ManualAgent) -> None:
    """Another run at the same priority has its requests leased."""
    assert (await open_run(center, "victim", {})).status == 200
    await fill(center, "victim", 5)
    blocks = await hand.lease(wait=5.0)
    assert [block.run for block in blocks] == ["victim"]
    await hand.finish(blocks[0])


@pytest.mark.parametrize("placement", [GROUP, FIXED], ids=["group", "fixed"])
@pytest.mark.parametrize("verb", ["finish", "cancel"])
async def test_an_ended_run_leaves_nothing_in_the_lanes(
    center: RunningCenter, fleet: Any, placement: dict[str, Any], verb: str
) -> None:
    """E1: the entries go before the allocation does, and the next run is served."""
    hand = await fleet("a")
    await open_run(center, "r", placement)
    await fill(center, "r", 40)
    assert (await center.services.bus.lanes.sizes())[Lane.LOW] == 40
    assert (await center.admin.post(f"/api/v1/runs/r/{verb}")).status == 200
    assert await in_lanes(center) == set()
    await until(lambda: released(center))
    assert sum((await center.services.bus.lanes.sizes()).values()) == 0
    await gets_through(center, hand)
    assert await repaired(center) == {}
    await center.ledger()


@pytest.mark.parametrize("to", [RunState.PAUSED, RunState.FAILED])
async def test_a_resting_run_leaves_the_lanes_and_comes_back(
    center: RunningCenter, fleet: Any, to: RunState
) -> None:
    """E1: a run that rests does not fill the lane of the others; continued, it is back."""
    hand = await fleet("a")
    await open_run(center, "r", FIXED)
    await fill(center, "r", 40)
    before = await in_lanes(center)
    await center.services.intake.move("r", to, "a test")
    assert await in_lanes(center) == set()
    await gets_through(center, hand)
    await center.services.intake.move("r", RunState.RUNNING)
    assert await in_lanes(center) == before
    assert await repaired(center) == {}


async def test_cancelled_requests_leave_the_lanes(center: RunningCenter) -> None:
    """E1: a block whose requests were all cancelled by filter is not in a lane any more."""
    await open_run(center, "r", {})
    await fill(center, "r", 20)
    asked = {"filter": {"run": "r"}, "dry_run": False}
    assert (await center.admin.post("/api/v1/requests/cancel", asked)).json()["changed"] == 20
    assert await in_lanes(center) == set()


async def test_entries_that_the_store_does_not_have_are_removed(
    center: RunningCenter, fleet: Any
) -> None:
    """E1: left behind for a target that no agent has; seen twice, removed, counted, shown."""
    await fleet("a")
    center.planted = True
    stale = [BlockRef(10_000 + n, "gone", 5, 10, "run:99") for n in range(4)]
    await center.services.bus.lanes.push(stale)
    assert (await center.services.bus.lanes.sizes())[Lane.LOW] == 40

    async def counted() -> bool:
        return await repaired(center) == {"lanes": 4}

    async def metrics() -> str:
        return (await center.anyone.get("/metrics")).content.decode()

    async def none_left() -> bool:
        # What is open is what the last look found: the look after the repair finds nothing.
        return 'skep_differences{kind="lanes"} 0.0' in await metrics()

    await until(counted)
    assert await in_lanes(center) == set()
    await until(none_left)
    assert 'skep_repairs_total{kind="lanes"} 4.0' in await metrics()
    lines = (await center.admin.get("/api/v1/repairs")).json()["items"]
    finding = self_check(msgspec.convert(lines, list[RepairLine]))
    assert finding.ok
    assert finding.detail == "differences: none; repaired since the start: lanes: 4"
    assert not self_check([RepairLine("lanes", 0, 3)]).ok


async def test_blocks_that_left_the_lanes_come_back(center: RunningCenter) -> None:
    """E1: the other direction; a block that two looks miss is put in again, and counted."""
    await open_run(center, "r", {})
    await fill(center, "r", 20)
    before = await in_lanes(center)
    assert len(before) == 4
    lost = sorted(before)[:2]
    center.planted = True
    assert await center.services.bus.lanes.remove(lost) == 2

    async def counted() -> bool:
        return await repaired(center) == {"lanes": 2}

    await until(counted)
    assert await in_lanes(center) == before


async def test_a_block_that_did_not_fit_is_not_a_difference(
    center: RunningCenter, fleet: Any
) -> None:
    """E1: what a full lane refused comes in when there is room, and is not counted."""
    hand = await fleet("a")
    await open_run(center, "r", {})
    await fill(center, "r", 40)
    blocks = await hand.lease(want=1)
    await center.put("r", ["http://127.0.0.1/more/1", "http://127.0.0.1/more/2"])
    await center.dispatched()
    await hand.hand.give_back(*blocks)
    hand.hand.held.clear()
    for block in await hand.lease(want=4):
        await hand.finish(block)

    async def all_in() -> bool:
        found = await center.services.store.blocks.claimable(100)
        return {ref.id for ref in found} == await in_lanes(center)

    await until(all_in)
    assert await repaired(center) == {}
