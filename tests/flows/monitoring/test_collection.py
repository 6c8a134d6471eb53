"""Figures over time: counted in memory, stored once, rolled up, bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from skep.errors import StoreDown
from skep.model.hosts.host import SiteNote
from skep.model.monitoring.series import (
    ACCEPTED,
    DEAD,
    DONE,
    FAILED,
    HOSTS,
    LABELS,
    LATENCY,
    OTHER,
    RECEIVED,
    STATUS,
    SeriesRow,
)
from skep.model.request import Outcome
from skep.monitoring.collector import WAITING, Collector
from skep.store.ports.blocks import SettleResult
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.doubles.counted_reports import report


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await opened.open()
    yield opened
    await opened.close()


def collector(
    store: SqlStore, clock: ManualClock, process: str = "c-1", runs: int = 20
) -> Collector:
    return Collector(store.monitoring.series, clock, process, runs)


async def rows(store: SqlStore, step: int = 10, run: str = "") -> list[SeriesRow]:
    return await store.monitoring.series.read(step, run, -(10**12), 10**12, 10_000)


async def total(store: SqlStore, name: str, run: str = "") -> float:
    return sum(n for row in await rows(store, run=run) for n, _ in row.cells.get(name, {}).values())


async def test_reports_become_series(store: SqlStore, clock: ManualClock) -> None:
    counting = collector(store, clock)
    counting.accepted(9)
    one, result = report("r1", 5, 2, "example.org")
    counting.reported([one, one], [result, SettleResult(2, "duplicate")])
    await counting.flush()
    (of_all,) = await rows(store)
    (of_run,) = await rows(store, run="r1")
    assert of_all.cells[ACCEPTED] == {"": (9.0, 1)}
    for row in (of_all, of_run):
        assert [row.cells[name][""][0] for name in (DONE, FAILED, DEAD, RECEIVED)] == [5, 2, 2, 500]
        assert row.cells[STATUS] == {"200": (5.0, 1), "none": (2.0, 1)}
        assert row.cells[HOSTS] == {"example.org": (7.0, 1)}
        assert sum(n for n, _ in row.cells[LATENCY].values()) == 7


async def test_a_part_that_was_stored_before_counts_once(
    store: SqlStore, clock: ManualClock
) -> None:
    counting = collector(store, clock)
    one, _ = report("r1", 5)
    counting.reported([one], [SettleResult(1, "stored", 2, "r1", 0)])
    await counting.flush()
    assert await total(store, DONE) == 2


class FrozenSeries:
    """A store whose first answer is lost, and that can be away."""

    def __init__(self, store: SqlStore) -> None:
        self._series = store.monitoring.series
        self.calls = 0
        self.away = False

    async def add(self, added: Sequence[SeriesRow]) -> int:
        self.calls += 1
        if self.away:
            raise StoreDown("no answer")
        if self.calls == 1:
            await self._series.add(added)
            raise StoreDown("the answer was lost")
        return await self._series.add(added)

    def __getattr__(self, name: str) -> object:
        return getattr(self._series, name)


async def test_a_lost_answer_counts_nothing_twice(store: SqlStore, clock: ManualClock) -> None:
    frozen = FrozenSeries(store)
    counting = Collector(frozen, clock, "c-1", 20)  # type: ignore[arg-type]  # the rest is passed on
    counting.accepted(3)
    assert await counting.flush() == 0
    counting.accepted(4)
    clock.advance(10)
    await counting.flush()
    assert await total(store, ACCEPTED) == 7
    assert len(await rows(store)) == 2


async def test_a_store_that_stays_away_does_not_fill_the_memory(
    store: SqlStore, clock: ManualClock
) -> None:
    frozen = FrozenSeries(store)
    frozen.away = True
    dropped: list[None] = []
    counting = Collector(frozen, clock, "c-1", 20, dropped=lambda: dropped.append(None))  # type: ignore[arg-type]  # the rest is passed on
    for _ in range(WAITING + 5):
        counting.accepted(1)
        await counting.flush()
        clock.advance(10)
    assert len(dropped) == 5
    frozen.away = False
    await counting.flush()
    assert await total(store, ACCEPTED) == WAITING - 1, "the last one has none"


async def test_a_killed_center_loses_what_it_did_not_flush(
    store: SqlStore, clock: ManualClock
) -> None:
    first = collector(store, clock, "c-1")
    first.accepted(5)
    await first.flush()
    first.accepted(100)
    second = collector(store, clock, "c-2")
    second.accepted(7)
    await second.flush()
    assert await total(store, ACCEPTED) == 12
    assert len(await rows(store)) == 2, "both wrote the same interval"


@pytest.mark.parametrize("jump", [-86_400.0, -15.0, 3600.0, 10.0**8])
async def test_a_clock_that_is_set_loses_and_doubles_nothing(
    store: SqlStore, clock: ManualClock, jump: float
) -> None:
    counting = collector(store, clock)
    held = await store.monitoring.lease("m", "c", 0, 30)
    assert held is not None
    for moved in (10.0, jump, 10.0, -jump, 10.0):
        counting.accepted(1)
        await counting.flush()
        await store.monitoring.series.roll_up(held, (60, 600), 100)
        clock.set_wall(clock.now() + moved)
    assert await total(store, ACCEPTED) == 5
    for step in (60, 600):
        coarse = await rows(store, step)
        assert sum(row.cells[ACCEPTED][""][0] for row in coarse) == 5


async def test_a_million_hosts_and_many_runs_are_bounded(
    store: SqlStore, clock: ManualClock
) -> None:
    counting = collector(store, clock, runs=3)
    for part in range(1000):
        one, _ = report("big", 0)
        one.outcomes = [Outcome(n, status=200) for n in range(1000)]
        one.sites = [SiteNote(f"h{part}-{n}", 1) for n in range(1000)]
        counting.reported([one], [SettleResult(1, "stored", 1000, "big")])
    for number in range(1500):
        one, result = report(f"run-{number}", 1, host=f"\0\x1b'{number}" * 50)
        counting.reported([one], [result])
    await counting.flush()
    assert len(await store.monitoring.series.recent(10, -(10**12), 10_000)) == 1 + 3
    (of_run,) = await rows(store, run="big")
    hosts = of_run.cells[HOSTS]
    assert len(hosts) == LABELS + 1
    assert sum(n for n, _ in hosts.values()) == 1_000_000
    assert hosts[OTHER][0] > 990_000
    assert await total(store, DONE) == 1_001_500


async def test_a_center_without_monitoring_counts_nothing(
    store: SqlStore, clock: ManualClock
) -> None:
    counting = Collector(store.monitoring.series, clock, "c", 20, enabled=False)
    one, result = report("r", 3)
    counting.reported([one], [result])
    await counting.flush()
    assert await total(store, DONE) == 0
