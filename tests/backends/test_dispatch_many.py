"""Dispatch of many runs on every store: several transactions, and planning in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from skep.bus.memory import MemoryBus
from skep.errors import StoreDown
from skep.lanes.dispatch import PLANS_TOGETHER, Dispatcher, lane_limits
from skep.model.hosts.politeness import Politeness
from skep.settings import LaneSettings
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.ground import assert_accounted, new_run, rows


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[SqlStore]:
    found = SqlStore(store_url)
    await found.open()
    yield found
    await found.close()


def dispatcher(store: SqlStore, bus: MemoryBus, clock: ManualClock) -> Dispatcher:
    return Dispatcher(LaneSettings(), store, bus, clock, "c1", lambda: None, Politeness())


async def fill(store: SqlStore, runs: int, each: int, **settings: Any) -> None:
    """Requests to a loopback host, which has no rate limit."""
    for number in range(runs):
        await new_run(store, f"r{number}", **settings)
        some = [msgspec.structs.replace(one, host="localhost") for one in rows(each)]
        await store.requests.accept(f"r{number}", some, 0.0)


async def test_many_plans_are_several_transactions_and_each_is_offered(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: what was packed before the store went away is in the lanes, the rest waits."""
    await fill(store, 2 * PLANS_TOGETHER + 5, 1)
    clock = ManualClock()
    bus = MemoryBus(lane_limits(LaneSettings()), clock)
    mine, honest, sizes = dispatcher(store, bus, clock), store.requests.pack, list[int]()

    async def pack(plans: Any, *more: Any) -> Any:
        sizes.append(len(plans))
        if len(sizes) == 3:
            raise StoreDown("away")
        return await honest(plans, *more)

    monkeypatch.setattr(store.requests, "pack", pack)
    with pytest.raises(StoreDown):
        await mine.dispatch()
    assert sum((await bus.lanes.sizes()).values()) == 2 * PLANS_TOGETHER
    assert await mine.dispatch() == 5
    assert sizes == [PLANS_TOGETHER, PLANS_TOGETHER, 5, 5]
    assert len(await bus.lanes.ids()) == 2 * PLANS_TOGETHER + 5
    await assert_accounted(store)


async def test_a_large_backlog_is_planned_like_a_small_one(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: in a thread, with the same result."""
    await fill(store, 3, 10, dispatch=4)
    clock = ManualClock()
    found = []
    for at_once in (500, 2):
        monkeypatch.setattr("skep.lanes.dispatch.PLANNED_AT_ONCE", at_once)
        bus = MemoryBus(lane_limits(LaneSettings()), clock)
        report = await dispatcher(store, bus, clock).once(dry_run=True)
        found.append([(one.kind, one.run, one.lane, one.size) for one in report.rows])
    assert found[0] == found[1] != []
