"""The self-check over very many rows: bounded steps in time and memory (issue 10, bad input)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.bus.memory import MemoryBus
from skep.center.self_check import SelfCheck
from skep.lanes.reconcile_lanes import STEP_LIMIT, LaneReconciler
from skep.model.lane import Lane
from skep.runtime.repair_counts import Repairs
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.ground import new_run

COLUMNS = "run, priority, state, token, losses, agent, target, lease_until, size, open, failed"


async def filled(path: Path, count: int) -> SqlStore:
    """A store with that many ready blocks, each of which holds a host; in no lane."""
    store = SqlStore(f"sqlite:///{path}")
    await store.open()
    await new_run(store, "r")
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    values = "1, 0, 1 + 15 * (i % 2), 0, 0, '', '', 0, 1, 1, 0"
    ready = f"INSERT INTO blocks ({COLUMNS}, collected, created_at) {numbers}"
    held = f"INSERT INTO site_holds (host, block, until, spacing) {numbers}"
    await store.database.write(lambda tx: tx.sql(f"{ready} SELECT {values}, 0, 1 FROM n"))
    await store.database.write(lambda tx: tx.sql(f"{held} SELECT 'h' || i, i, 9, 1 FROM n"))
    return store


def empty_lanes(count: int) -> MemoryBus:
    return MemoryBus(dict.fromkeys(Lane, count))


async def test_a_walk_over_lanes_remembers_one_page(tmp_path: Path) -> None:
    """Issue 10, bad input: every block is missing, and each is found by two looks at its page."""
    store = await filled(tmp_path / "skep.db", 4000)
    try:
        check = LaneReconciler(store.blocks, empty_lanes(4000).lanes, limit=500)
        found = list[int]()
        for step in range(16):
            page = await check.next_page(at_once=False)
            assert len(check.missing) <= 500, step
            found += [ref.id for ref in page.due]
        assert found == list(range(1, 4001))
    finally:
        await store.close()


async def test_claimable_blocks_are_read_in_the_order_of_an_index(tmp_path: Path) -> None:
    """Issue 10, bad input: a page of claimable blocks sorts nothing, so a million cost no more."""
    store = await filled(tmp_path / "skep.db", 10)
    plans = list[str]()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT blocks.id, runs.id"):
            plans.append(statement)

    engine = store.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        assert [ref.id for ref in await store.blocks.claimable(10, 2)] == list(range(3, 11))
        for statement in plans:
            query = sa.text(f"EXPLAIN QUERY PLAN {statement.replace('?', '1')}")
            rows = await store.database.read(lambda c, query=query: c.execute(query).all())  # type: ignore[misc]
            assert not [row for row in rows if "TEMP B-TREE" in row[3]], rows
        assert plans
    finally:
        await store.close()


@pytest.mark.slow
async def test_a_million_blocks(tmp_path: Path) -> None:
    """Issue 10, bad input: with 1,000,000 blocks no step takes long or remembers much."""
    store = await filled(tmp_path / "skep.db", 1_000_000)
    try:

        async def withdraw(_: list[str]) -> None:
            raise AssertionError("nothing is to be withdrawn")

        repairs = Repairs()
        check = SelfCheck(store, ManualClock(), repairs, withdraw, apart=0.0)
        lanes = LaneReconciler(store.blocks, empty_lanes(1_000_000).lanes)
        took = list[float]()
        for _ in range(100):
            began = time.monotonic()
            await check.step()
            await lanes.remove_surplus()
            await lanes.next_page(at_once=False)
            took.append(time.monotonic() - began)
            assert len(lanes.missing) <= STEP_LIMIT
        assert sorted(took)[50] < 0.5, took
        assert not repairs.done
    finally:
        await store.close()
