"""Dispatch on every store: shares, orders, failed-only, the log, and two centers at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from skep.bus.memory import MemoryBus
from skep.errors import BusDown, StoreDown
from skep.lanes.dispatch import STUCK_SECONDS, Dispatcher, dispatch_in_time, lane_limits
from skep.model.block import BlockRef
from skep.model.dispatch import DispatchReport
from skep.model.hosts.politeness import Politeness
from skep.model.lane import Lane
from skep.model.request import Work
from skep.settings import LaneSettings
from skep.store.ports.requests import RequestRow
from skep.store.sql.blocks.rows import works_of
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.ground import assert_accounted, new_run
from skep.testing.conformance.store.ground import row as a_row
from skep.testing.conformance.store.ground import rows as some_rows
from skep.testing.conformance.store.reports import failed, settle, settlement

MANNERS = Politeness()


def own(one: RequestRow, host: str = "localhost") -> RequestRow:
    """To a loopback host, which has no rate limit: this is about lanes."""
    return msgspec.structs.replace(one, host=host)


def row(name: object, priority: int = 5) -> RequestRow:
    return own(a_row(name, priority))


def rows(count: int, **fields: Any) -> list[RequestRow]:
    return [own(one) for one in some_rows(count, **fields)]


class Ground:
    """A store, and dispatchers on it, each with a bus of its own unless one is given."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.clock = ManualClock()

    def dispatcher(
        self, name: str = "c1", bus: Any = None, store: SqlStore | None = None, **settings: Any
    ) -> Dispatcher:
        lanes = LaneSettings(**settings)
        self.bus = bus or MemoryBus(lane_limits(lanes), self.clock)
        chosen = store or self.store
        return Dispatcher(
            lanes, chosen, self.bus, self.clock, name, lambda: None, MANNERS, host="machine"
        )

    async def works(self) -> dict[int, list[Work]]:
        """What is in the blocks that agents could take."""
        refs = await self.store.blocks.claimable(10_000)
        ids = [ref.id for ref in refs]
        return await self.store.database.read(lambda c: works_of(c, ids)) if ids else {}


@pytest.fixture
async def ground(store_url: str) -> AsyncIterator[Ground]:
    store = SqlStore(store_url)
    await store.open()
    yield Ground(store)
    await assert_accounted(store)
    await store.close()


def told(report: DispatchReport) -> list[tuple[str, str, str, int]]:
    return [(line.kind, line.run, line.lane, line.size) for line in report.rows]


def of_host(host: str, count: int, priority: int = 5) -> list[RequestRow]:
    some = (row(f"{host}/{n}/{priority}", priority) for n in range(count))
    return [own(one, f"{host}.localhost") for one in some]


async def test_a_round_by_hand_takes_its_own_number_of_each_job(ground: Ground) -> None:
    """D4: the job's number for each job, whatever else there is room for."""
    for run, number in (("small", 30), ("large", 150), ("twin", 150)):
        await new_run(ground.store, run, dispatch=number)
        await ground.store.requests.accept(run, rows(200), 0.0)
    await ground.store.database.write(
        lambda tx: tx.sql("UPDATE runs SET job = 'alone' WHERE id = 'small'")
    )
    dispatcher = ground.dispatcher()
    report = await dispatcher.once()
    taken: Counter[str] = Counter()
    for line in report.rows:
        taken[line.job] += line.size
    assert taken == {"alone": 30, "job": 150}
    assert report.size == sum((await ground.bus.lanes.sizes()).values())
    assert (report.center, report.host, report.dry_run) == ("c1", "machine", False)


async def test_continuous_dispatch_fills_the_lane_and_alerts_who_waits(ground: Ground) -> None:
    """D3, D4: as many rounds as there is room for; who gets nothing leaves an alert row."""
    for run in ("a", "b"):
        await new_run(ground.store, run)
        await ground.store.requests.accept(run, rows(400), 0.0)
    dispatcher = ground.dispatcher(low_limit=300)
    assert await dispatcher.dispatch() == 300
    assert (await ground.bus.lanes.sizes())[Lane.LOW] == 300
    assert await dispatcher.dispatch() == 0
    assert await ground.store.alerts.recent(10) == [], "a full lane is normal work (U12)"
    ground.clock.advance(STUCK_SECONDS)
    assert await dispatcher.dispatch() == 0
    await dispatcher.log.write()
    logged = await ground.store.dispatches.recent(10)
    assert Counter(line.kind for line in logged)["alert"] == 2
    good = [line for line in logged if line.kind == "success"]
    assert sum(line.size for line in good) == 300
    assert {(line.job, line.lane, line.center, line.host) for line in logged} == {
        ("job", "low", "c1", "machine")
    }
    assert {line.reason for line in logged} == {"packed", "lane low is full (300)"}
    alerts = await ground.store.alerts.recent(10)
    assert {(alert["kind"], alert["subject"]) for alert in alerts} == {
        ("lane_full", "a"),
        ("lane_full", "b"),
    }
    assert (await ground.store.ledgers.read()).waiting == 500


async def test_a_dry_run_changes_nothing_and_says_what_the_round_then_does(
    ground: Ground,
) -> None:
    """D4: `skep dispatch --dry-run`."""
    await new_run(ground.store, "r")
    await ground.store.requests.accept("r", [*rows(150), row("x", -1)], 0.0)
    dispatcher = ground.dispatcher()
    before = await ground.store.ledgers.read()
    dry = await dispatcher.once(dry_run=True)
    assert await ground.store.ledgers.read() == before
    assert await ground.store.dispatches.recent(10) == []
    assert dry.dry_run
    wet = await dispatcher.once()
    assert sum(line.size for line in wet.rows) == 100
    assert sum(line.size for line in dry.rows) == 100
    assert {line.reason for line in dry.rows} == {"would be packed"}


async def test_only_what_failed_before_is_dispatched_when_asked_for(ground: Ground) -> None:
    """D5: by hand, by a run's setting, and for the whole center."""
    await new_run(ground.store, "r", retries=3)
    await new_run(ground.store, "picky", failed_only=True)
    await ground.store.requests.accept("r", rows(10), 0.0)
    await ground.store.requests.accept("picky", rows(10), 0.0)
    dispatcher = ground.dispatcher()
    assert told(await dispatcher.once(failed_only=True)) == []
    assert await dispatcher.dispatch() == 10
    (ref,) = await ground.store.blocks.claimable(10)
    (block,) = await ground.store.blocks.lease([ref.id], "a", 0.0, 30.0)
    numbers = [work.id for work in (await ground_works(ground.store, block.id))]
    again = dict.fromkeys(numbers[:4], 1.0)
    await settle(ground.store, settlement(block, failed(numbers[:4]), again, agent="a"))
    await ground.store.requests.accept("r", [row(f"new {n}") for n in range(5)], 0.0)
    ground.clock.advance(10.0)
    assert await ground.store.requests.wake(2.0, 100) == 4
    choosy = ground.dispatcher("c2", failed_only=True)
    assert await choosy.dispatch() == 4
    refs = await ground.store.blocks.claimable(10)
    packed = await ground_works(ground.store, refs[-1].id)
    assert sorted(work.id for work in packed) == sorted(numbers[:4])
    assert (await ground.store.ledgers.read("picky")).waiting == 10


async def ground_works(store: SqlStore, block: int) -> list[Work]:
    found = await store.database.read(lambda c: works_of(c, [block]))
    return found[block]


@pytest.mark.parametrize("order", ["priority", "host", "both"])
async def test_requests_are_taken_in_the_order_of_the_run(ground: Ground, order: str) -> None:
    """D4: by priority the oldest first, by host and by both host by host."""
    await new_run(ground.store, "r", order=order, block_size=4, dispatch=8)
    mixed = [one for pair in zip(of_host("x", 6), of_host("y", 6), strict=True) for one in pair]
    await ground.store.requests.accept("r", mixed, 0.0)
    await ground.dispatcher().once()
    blocks = await ground.works()
    hosts = [[work.uri.split("/")[3] for work in works] for works in blocks.values()]
    if order == "priority":
        assert hosts == [["x", "y", "x", "y"], ["x", "y", "x", "y"]]
    else:
        assert hosts == [["x", "x", "x", "x"], ["x", "x", "y", "y"]]


@pytest.mark.parametrize("order", ["priority", "host", "both"])
async def test_a_better_priority_comes_first_but_by_host_all_count_alike(
    ground: Ground, order: str
) -> None:
    """D2, D4: what one round takes of a run with two priorities."""
    await new_run(ground.store, "r", order=order, dispatch=10)
    for priority in (5, 0):
        await ground.store.requests.accept("r", of_host("x", 40, priority), 0.0)
    report = await ground.dispatcher().once()
    taken = {line.lane: line.size for line in report.rows}
    assert taken == ({"high": 5, "low": 5} if order == "host" else {"high": 10})


async def test_a_run_that_cannot_be_packed_leaves_a_row_and_the_others_go_on(
    ground: Ground,
) -> None:
    """D4: a failed row with job and reason; nothing of the run is lost."""
    await new_run(ground.store, "bad")
    await new_run(ground.store, "good")
    await ground.store.requests.accept("bad", rows(5, arguments=b"\xc1 no msgpack"), 0.0)
    await ground.store.requests.accept("good", rows(5), 0.0)
    dispatcher = ground.dispatcher()
    assert await dispatcher.dispatch() == 5
    await dispatcher.log.write()
    (wrong,) = await ground.store.dispatches.recent(10, kind="failed")
    assert (wrong.run, wrong.job, wrong.lane) == ("bad", "job", "low")
    assert "error: " in wrong.reason
    assert (await ground.store.ledgers.read("bad")).waiting == 5
    (right,) = await ground.store.dispatches.recent(10, run="good")
    assert (right.kind, right.size) == ("success", 5)


class Hanging(MemoryBus):
    """Lanes that do not answer."""

    broken: type[Exception] | None = None

    async def lead(self, name: str, holder: str, seconds: float) -> bool:
        if self.broken is None:
            await asyncio.sleep(3600)
        return await super().lead(name, holder, seconds)


async def test_a_dispatch_has_a_time_limit_and_says_so_in_the_log(ground: Ground) -> None:
    """D4: after its time it is ended, a failed row says why, and the next one works."""
    await new_run(ground.store, "r")
    await ground.store.requests.accept("r", rows(5), 0.0)
    bus = Hanging(lane_limits(LaneSettings()), ground.clock)
    dispatcher = ground.dispatcher(bus=bus, dispatch_seconds=0.05)
    assert await dispatch_in_time(dispatcher, 0.05) == 0
    bus.broken = BusDown
    assert await dispatch_in_time(dispatcher, 30.0) == 5
    (wrong,) = await ground.store.dispatches.recent(10, kind="failed")
    assert wrong.reason == "took longer than 0.05 s and was aborted"


class Dark(MemoryBus):
    """A bus that is away when blocks are to go into lanes."""

    away = True

    async def push(self, refs: list[BlockRef]) -> list[BlockRef]:
        if self.away:
            raise BusDown("it is away")
        return await self._lanes.push(refs)


async def test_what_was_packed_without_a_bus_is_in_no_lane_and_comes_back(ground: Ground) -> None:
    """D4: a failed row with the reason; `reconcile` brings the blocks."""
    await new_run(ground.store, "r")
    await ground.store.requests.accept("r", rows(5), 0.0)
    bus = Dark(lane_limits(LaneSettings()), ground.clock)
    dispatcher = ground.dispatcher(bus=bus)
    honest, bus.lanes.push = bus.lanes.push, bus.push  # type: ignore[method-assign,assignment]
    with pytest.raises(BusDown):
        await dispatcher.dispatch()
    bus.lanes.push = honest  # type: ignore[method-assign]
    assert await dispatcher.reconcile(at_once=True) == 1
    await dispatcher.log.write()
    (wrong,) = await ground.store.dispatches.recent(10, kind="failed")
    assert wrong.reason == "it is away"


async def test_each_round_of_continuous_dispatch_is_a_row_that_holds_the_number(
    ground: Ground,
) -> None:
    """E10, D4: three thousand requests of one job fill the lane in thirty rounds."""
    await new_run(ground.store, "r")
    await ground.store.requests.accept("r", rows(3000), 0.0)
    dispatcher = ground.dispatcher()
    assert await dispatcher.dispatch() == 3000
    await dispatcher.log.write()
    found = await ground.store.dispatches.recent(100, kind="success")
    assert [(line.size, line.blocks, line.rounds) for line in found] == [(100, 1, 1)] * 30


async def test_two_jobs_that_wait_share_the_lane_by_their_numbers(ground: Ground) -> None:
    """E10, D4: also when every dispatch finds room for a few requests only, as in normal work;
    a row tells of no more than a round takes."""
    numbers = {"small": 10, "large": 30}
    for run, number in numbers.items():
        await new_run(ground.store, run, dispatch=number, block_size=5)
        await ground.store.requests.accept(run, [row(f"{run} {n}") for n in range(400)], 0.0)
    await ground.store.database.write(lambda tx: tx.sql("UPDATE runs SET job = id"))
    dispatcher = ground.dispatcher(low_limit=20)
    taken: Counter[str] = Counter()
    for _ in range(40):
        await dispatcher.dispatch()
        for ref in await ground.bus.lanes.pop((Lane.LOW,), ("",), 1):
            taken[ref.run] += ref.size
    assert abs(taken["large"] - 3 * taken["small"]) <= 40
    await dispatcher.log.write()
    for line in await ground.store.dispatches.recent(1000, kind="success"):
        assert line.size <= numbers[line.run]


async def test_the_log_keeps_its_sums_while_the_store_is_away(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is not lost because it could not be written just then."""
    await new_run(ground.store, "r")
    await ground.store.requests.accept("r", rows(5), 0.0)
    dispatcher = ground.dispatcher()

    async def down(_rows: object) -> None:
        raise StoreDown("away")

    with monkeypatch.context() as patch:
        patch.setattr(ground.store.dispatches, "add", down)
        with pytest.raises(StoreDown):
            await dispatcher.dispatch()
    await dispatcher.log.write()
    (good,) = await ground.store.dispatches.recent(10)
    assert (good.kind, good.size, good.blocks, good.rounds) == ("success", 5, 1, 1)


async def test_the_log_sums_up_and_forgets_by_age(ground: Ground) -> None:
    """D4: bounded; one row for what was dispatched of a run into a lane in some seconds."""
    await new_run(ground.store, "r")
    dispatcher = ground.dispatcher(log_kept=100.0)
    for number in range(4):
        await ground.store.requests.accept("r", [row(number)], 0.0)
        assert await dispatcher.dispatch() == 1
    await dispatcher.log.write()
    newer, older = await ground.store.dispatches.recent(10)
    assert (newer.size, newer.rounds, older.size, older.rounds) == (3, 3, 1, 1)
    assert [line.id for line in await ground.store.dispatches.recent(10, newer.id)] == [older.id]
    ground.clock.advance(101.0)
    await dispatcher.log.forget()
    assert await ground.store.dispatches.recent(10) == []


async def test_two_centers_dispatching_at_once_never_pack_a_request_twice(
    store_url: str, ground: Ground
) -> None:
    """D4: real concurrency, each center with a writing thread and a bus of its own, so that
    no turn keeps them apart: every request is in one block, and in one only."""
    runs = ("a", "b", "c")
    for number, run in enumerate(runs):
        order = ("priority", "host", "both")[number]
        await new_run(ground.store, run, block_size=7, dispatch=40, order=order)
        await ground.store.requests.accept(run, rows(600), 0.0)
    other = SqlStore(store_url)
    await other.open()
    roomy: dict[str, Any] = {"low_limit": 100_000, "dispatch_limit": 90}
    centers = [ground.dispatcher("c1", **roomy), ground.dispatcher("c2", store=other, **roomy)]

    moved = [0, 0]
    # Both at the same moment, again and again: one alone would be through before the other began.
    while any(got := await asyncio.gather(*(center.dispatch() for center in centers))):
        moved = [before + more for before, more in zip(moved, got, strict=True)]
    await other.close()
    packed = [work.id for works in (await ground.works()).values() for work in works]
    assert len(packed) == len(set(packed)) == 1800
    assert sum(moved) == 1800
    assert min(moved) > 0
    assert (await ground.store.ledgers.audit()).queued == 1800
