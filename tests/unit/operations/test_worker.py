"""Bulk operations: the worker with a clock that the test moves, and two centers on one store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from skep.errors import Conflict, InvalidInput, StoreDown
from skep.model.operations import Operation, OperationState
from skep.model.states import RunState
from skep.operations.acts import Act, ActTraits, Batch, Registry, Resource
from skep.operations.kinds import EachAct, StoreAct
from skep.operations.planning import OperationPlanner
from skep.operations.worker import Worker
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.failures import dead
from skep.testing.conformance.store.ground import assert_accounted, ledger, new_run
from skep.wire.api.operations import StartOperation
from skep.wire.filter.tables import REQUESTS, RUNS

LEASE = 15.0
RETRY = ActTraits("retry", "requests", "Retry.", batch=4, rate=1000)
DELETE = ActTraits("delete", "requests", "Delete.", destroys=True, batch=4, rate=1000)
PAUSE = ActTraits("pause", "runs", "Pause.", batch=2, rate=10)


class Ground:
    """A store, and centers that work on it with one clock."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.clock = ManualClock(1100.0)
        self.paused: list[str] = []
        self.breaks: Callable[[str], None] = lambda _: None
        self.registry = Registry(
            (Resource("requests", REQUESTS), Resource("runs", RUNS)), self._acts()
        )
        self.planner = OperationPlanner(store, self.registry, self.clock, 30.0, lambda: None)

    def _acts(self) -> list[Act]:
        async def pause(run: str, batch: Batch) -> None:
            self.breaks(run)
            await self.store.runs.move(run, RunState.PAUSED, f"{batch.operation.id}", 1100.0)
            self.paused.append(run)

        store, clock = self.store, self.clock
        return [
            StoreAct(RETRY, store, clock, "retry"),
            StoreAct(DELETE, store, clock, "forget"),
            EachAct(PAUSE, store, clock, 30.0, pause),
        ]

    def center(self, name: str = "a") -> Worker:
        return Worker(name, self.store, self.registry, self.clock, LEASE, 30.0)

    async def start(self, act: str, filter_: str, **more: Any) -> Operation:
        resource = "runs" if act == "pause" else "requests"
        asked = StartOperation(resource, act, filter_, dry_run=False, **more)
        return await self.planner.start(asked, "anna")

    async def all_of(self, center: Worker, operation: Operation) -> Operation:
        for _ in range(100):
            self.clock.advance(await center.step())
            found = await self.store.operations.get(operation.id)
            if not found.is_open:
                return found
        raise AssertionError(f"it does not end: {found}")


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await store.open()
    yield Ground(store)
    await assert_accounted(store)
    await store.close()


def counts(operation: Operation) -> dict[tuple[str, str], int]:
    return {(one.outcome, one.reason): one.count for one in operation.results}


async def test_everything_that_matched_is_changed_once(ground: Ground) -> None:
    await dead(ground.store)
    started = await ground.start("retry", "state:dead")
    ended = await ground.all_of(ground.center(), started)
    assert (ended.state, ended.matched, ended.settled) == (OperationState.DONE, 9, 9)
    assert counts(ended) == {("done", ""): 9}
    assert ended.asked.creator == "anna"
    assert (await ledger(ground.store)).waiting == 9


async def test_a_second_center_continues_where_the_first_stopped(ground: Ground) -> None:
    """The first one is killed after a batch: its lease runs out, nothing is done twice, and it
    changes nothing when it comes back."""
    await dead(ground.store)
    started = await ground.start("retry", "state:dead")
    first, second = ground.center("a"), ground.center("b")
    for _ in range(2):  # the set, and a batch
        ground.clock.advance(await first.step())
    assert (await ground.store.operations.get(started.id)).settled == 4
    assert await second.step() > 0
    assert (await ground.store.operations.get(started.id)).holder == "a", "it is still held"
    ground.clock.advance(LEASE + 1)
    ground.clock.advance(await second.step())
    after = await ground.store.operations.get(started.id)
    assert (after.holder, after.settled) == ("b", 8)
    await first.step()  # it believes that it holds the operation
    assert await ground.store.operations.get(started.id) == after
    ended = await ground.all_of(second, started)
    assert counts(ended) == {("done", ""): 9}


async def test_a_center_that_stops_hands_over_at_once(ground: Ground) -> None:
    await dead(ground.store)
    started = await ground.start("retry", "state:dead")
    first = ground.center("a")
    await first.step()
    await first.stop()
    ended = await ground.all_of(ground.center("b"), started)
    assert (ended.state, ended.lease) == (OperationState.DONE, 3)


async def test_what_matches_later_is_left_and_what_no_longer_matches_is_skipped(
    ground: Ground,
) -> None:
    numbers = await dead(ground.store)
    started = await ground.start("retry", "state:dead")
    worker = ground.center()
    ground.clock.advance(await worker.step())  # the set is fixed
    await ground.store.failures.act("cancel", numbers[:3], 2000.0)
    await dead(ground.store, "later")
    ended = await ground.all_of(worker, started)
    assert counts(ended) == {("done", ""): 6, ("skipped", "no longer matches the filter"): 3}
    assert (await ledger(ground.store, "later")).dead == 9


async def test_two_operations_on_the_same_objects_share_them(ground: Ground) -> None:
    await dead(ground.store)
    operations = [await ground.start("retry", "state:dead") for _ in range(2)]
    workers = [ground.center("a"), ground.center("b")]
    for _ in range(40):
        waits = [await worker.step() for worker in workers]
        ground.clock.advance(max(waits))
    ended = [await ground.store.operations.get(one.id) for one in operations]
    assert [one.state for one in ended] == [OperationState.DONE] * 2
    assert sum(counts(one).get(("done", ""), 0) for one in ended) == 9
    assert sum(one.settled for one in ended) == 18


async def test_what_cannot_be_undone_needs_the_dry_run(ground: Ground) -> None:
    await dead(ground.store)
    await ground.store.runs.move("run", RunState.FINISHED, "", 1000.0)
    asked = StartOperation("requests", "delete", "state:dead status:403")
    with pytest.raises(InvalidInput, match="make a dry run"):
        await ground.start("delete", asked.filter)
    plan = await ground.planner.plan(asked)
    assert (plan.matched, plan.exact, plan.destroys, len(plan.examples)) == (3, True, True, 3)
    for wrong in ("3", "yes", plan.confirm[:-1] + "x", plan.confirm.replace("3@", "9@", 1)):
        with pytest.raises(InvalidInput, match="confirm"):
            await ground.start("delete", asked.filter, confirm=wrong)
    with pytest.raises(InvalidInput, match="another act, filter or argument"):
        await ground.start("delete", "state:dead", confirm=plan.confirm)
    started = await ground.start("delete", asked.filter, confirm=plan.confirm)
    ended = await ground.all_of(ground.center(), started)
    assert counts(ended) == {("done", ""): 3}
    ground.clock.advance(3601)
    with pytest.raises(Conflict, match="older than 60 minutes"):
        await ground.start("delete", asked.filter, confirm=plan.confirm)


async def test_more_than_was_confirmed_is_not_touched(ground: Ground) -> None:
    """The filter matches other rows at the start, or when the set is collected."""
    await dead(ground.store)
    asked = StartOperation("requests", "delete", "error:network")
    plan = await ground.planner.plan(asked)
    started = await ground.start("delete", asked.filter, confirm=plan.confirm)
    await dead(ground.store, "more")
    with pytest.raises(Conflict, match=r"12 requests now, 6 were confirmed"):
        await ground.start("delete", asked.filter, confirm=plan.confirm)
    await ground.all_of(ground.center(), started)
    assert (await ledger(ground.store, None)).dead == 18


async def test_a_rate_is_kept(ground: Ground) -> None:
    for number in range(6):
        await new_run(ground.store, f"r{number}")
    started = await ground.start("pause", "state:running", rate=1)
    worker, begun = ground.center(), ground.clock.monotonic()
    ended = await ground.all_of(worker, started)
    assert counts(ended) == {("done", ""): 6}
    assert ground.clock.monotonic() - begun >= 6.0


async def test_an_object_that_fails_does_not_stop_the_others(ground: Ground) -> None:
    for number in range(5):
        await new_run(ground.store, f"r{number}")

    def breaks(run: str) -> None:
        if run == "r1":
            raise Conflict("r1 is busy")
        if run == "r2":
            raise ValueError("a bug")

    ground.breaks = breaks
    ended = await ground.all_of(ground.center(), await ground.start("pause", "state:running"))
    title = Conflict.title
    assert counts(ended) == {
        ("done", ""): 3,
        ("failed", title): 1,
        ("failed", "unexpected error"): 1,
    }
    (busy,) = (one.examples for one in ended.results if one.reason == title)
    assert busy == ["r1: r1 is busy"]


async def test_an_act_that_was_done_before_a_crash_is_not_repeated(ground: Ground) -> None:
    """The store goes away between the act and its position."""
    for number in range(4):
        await new_run(ground.store, f"r{number}")
    started = await ground.start("pause", "state:running")
    worker = ground.center()
    ground.clock.advance(await worker.step())

    def breaks(run: str) -> None:
        if run == "r1":
            raise StoreDown("away")

    ground.breaks = breaks
    with pytest.raises(StoreDown):
        await worker.step()
    assert ground.paused == ["r0"]
    ground.breaks = lambda _: None
    ground.clock.advance(LEASE + 1)
    ended = await ground.all_of(ground.center("b"), started)
    assert ground.paused == ["r0", "r1", "r2", "r3"]
    assert counts(ended) == {("done", ""): 3, ("skipped", "no longer matches the filter"): 1}


async def test_a_slow_act_does_not_outlive_its_lease(ground: Ground) -> None:
    for number in range(2):
        await new_run(ground.store, f"r{number}")
    ground.breaks = lambda _: ground.clock.advance(LEASE / 2)
    started = await ground.start("pause", "state:running")
    worker = ground.center()
    await worker.step()
    ground.clock.advance(1)
    await worker.step()
    assert (await ground.store.operations.get(started.id)).settled == 1
    ended = await ground.all_of(worker, started)
    assert counts(ended) == {("done", ""): 2}


async def test_an_unknown_act_ends_with_a_reason(ground: Ground) -> None:
    """A center of another version has started it."""
    started = await ground.start("retry", "state:dead")
    worker = Worker("a", ground.store, Registry((), ()), ground.clock, LEASE, 30.0)
    ended = await ground.all_of(worker, started)
    assert (ended.state, "not a resource" in ended.error) == (OperationState.FAILED, True)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"resource": "pages"}, "'pages' is not a resource; use one of requests, runs"),
        ({"act": "paint"}, "'paint' is not an act on requests; use one of delete, retry"),
        ({"filter": ""}, 'an empty filter matches all requests; for that, send "all": true'),
        ({"filter": "colour:red"}, "colour"),
        ({"filter": "x" * 10_000}, "10000 characters"),
        ({"arguments": {"x": 1}}, "x"),
    ],
)
async def test_a_bad_request_starts_nothing(
    ground: Ground, fields: dict[str, Any], text: str
) -> None:
    given = {"resource": "requests", "act": "retry", "filter": "state:dead", **fields}
    asked = StartOperation(**given)
    for call in (ground.planner.plan(asked), ground.planner.start(asked, "anna")):
        with pytest.raises(InvalidInput, match=text):
            await call
    assert await ground.store.operations.recent(10) == []
