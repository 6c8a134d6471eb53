"""Promises about bulk operations: leases, sets in parts, acts. Part of the store's suite."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skep.errors import Conflict, LostLease, NotFound
from skep.model.filter.checked import CheckedFilter
from skep.model.fleet.agent import Registration, Vitals
from skep.model.jobs.job import Job
from skep.model.operations import (
    NewOperation,
    Operation,
    OperationLease,
    OperationPart,
    OperationResult,
    OperationState,
)
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.ports import Store
from skep.testing.conformance.store.failures import dead
from skep.testing.conformance.store.ground import NOW, ledger, new_run, rows
from skep.testing.conformance.store.leasing import lease as leased_blocks
from skep.testing.conformance.store.leasing import pack
from skep.testing.conformance.store.reports import ids
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import AGENTS, JOBS, REQUESTS, RUNS

LATER = NOW + 1
ALIVE = 30.0


def asked(act: str = "retry", **fields: Any) -> NewOperation:
    return NewOperation("requests", act, "state:dead", "anna", LATER, **fields)


def wanted(text: str, now: float = LATER) -> CheckedFilter:
    return read_filter(text, REQUESTS, now)


async def claimed(store: Store, holder: str = "a", now: float = NOW) -> Operation:
    (held,) = await store.operations.claim(holder, now, now + 10, 5)
    return held


async def begun(store: Store, *parts: list[Any]) -> Operation:
    """An operation with this set, held by center `a`."""
    await store.operations.add(asked(), 100, NOW)
    held = await claimed(store)
    return await store.operations.collect(held.proof, parts, "9", NOW, last=True)


def counts(operation: Operation) -> dict[tuple[str, str], int]:
    return {(one.outcome, one.reason): one.count for one in operation.results}


class OperationPromises:
    async def test_an_operation_is_stored_once_per_key(self, store: Store) -> None:
        first = await store.operations.add(asked(once="k"), 100, NOW)
        assert await store.operations.add(asked("cancel", once="k"), 100, NOW) == first
        more = [await store.operations.add(asked(), 100, NOW) for _ in range(2)]
        assert len({first.id, *(one.id for one in more)}) == 3
        assert (first.state, first.matched, first.asked.once) == (OperationState.WAITING, 0, "k")
        listed = await store.operations.recent(2)
        assert [one.id for one in listed] == [more[1].id, more[0].id]
        assert await store.operations.recent(5, more[0].id) == [first]
        with pytest.raises(Conflict, match="3 operations are open"):
            await store.operations.add(asked(), 3, NOW)
        with pytest.raises(NotFound, match=str(more[1].id + 1)):
            await store.operations.get(more[1].id + 1)

    async def test_an_operation_has_one_holder(self, store: Store, other_store: Store) -> None:
        for _ in range(6):
            await store.operations.add(asked(), 100, NOW)
        centers = (store, other_store) * 2
        claims = [
            center.operations.claim(f"c{n}", NOW, NOW + 10, 2) for n, center in enumerate(centers)
        ]
        held = [one.id for claim in await asyncio.gather(*claims) for one in claim]
        # A claim passes over rows that another one has locked, also those that it does not take.
        held += [one.id for one in await store.operations.claim("rest", NOW, NOW + 10, 6)]
        assert len(held) == len(set(held)) == 6
        assert await store.operations.claim("late", NOW + 5, NOW + 15, 9) == []
        taken = await store.operations.claim("late", NOW + 11, NOW + 20, 9)
        assert [one.lease for one in taken] == [2] * 6
        again = await store.operations.claim("late", NOW + 12, NOW + 30, 9)
        assert [one.lease for one in again] == [2] * 6, "a renewal keeps the lease"
        await store.operations.release("late")
        assert len(await store.operations.claim("next", NOW + 12, NOW + 20, 9)) == 6

    async def test_a_lease_that_was_lost_changes_nothing(self, store: Store) -> None:
        """A center that was silent for too long, one that never had it, and an ended one."""
        old = await begun(store, [1, 2], [3])
        new = await claimed(store, "b", NOW + 11)
        part = OperationPart(1, [1, 2])
        operations = store.operations
        ghosts = OperationLease(old.id, "b", 1), OperationLease(10**9, "b", 2)
        for lost in (old.proof, *ghosts):
            for call in (
                operations.collect(lost, [[7]], "8", NOW, last=True),
                operations.settle(lost, 1, []),
                operations.act(lost, part, "retry", wanted("state:dead"), NOW),
                operations.end(lost, OperationState.DONE, "", NOW),
            ):
                with pytest.raises(LostLease, match=str(lost.operation)):
                    await call
        assert await operations.get(new.id) == new
        assert await operations.part(new.proof) == part

    async def test_a_part_is_counted_once(self, store: Store) -> None:
        held = await begun(store, [1, 2], ["x"])
        done = [OperationResult("done", "", 2, ["1", "2"])]
        after = await store.operations.settle(held.proof, 1, done)
        assert (after.matched, after.settled, after.results) == (3, 2, done)
        with pytest.raises(LostLease):
            await store.operations.settle(held.proof, 1, done)
        assert await store.operations.part(held.proof) == OperationPart(2, ["x"])
        assert (await store.operations.get(held.id)).settled == 2

    async def test_what_is_left_of_a_part_comes_again(self, store: Store) -> None:
        held = await begun(store, [1, 2, 3])
        done = [OperationResult("done", "", 1, ["1"])]
        after = await store.operations.settle(held.proof, 1, done, [2, 3])
        assert after.settled == 1
        assert await store.operations.part(held.proof) == OperationPart(1, [2, 3])
        assert (await store.operations.settle(held.proof, 1, done)).settled == 3
        assert await store.operations.part(held.proof) is None

    async def test_cancelling_fences_the_holder_out(self, store: Store) -> None:
        held = await begun(store, [1])
        ended = await store.operations.cancel(held.id, NOW + 3)
        assert (ended.state, ended.ended_at) == (OperationState.CANCELLED, NOW + 3)
        with pytest.raises(LostLease):
            await store.operations.settle(held.proof, 1, [])
        assert await store.operations.cancel(held.id, NOW + 9) == ended
        assert await store.operations.claim("b", NOW + 99, NOW + 120, 5) == []
        assert await store.operations.recent(5, only_open=True) == []
        assert await store.operations.forget(NOW + 3, 10) == 0
        assert await store.operations.forget(NOW + 4, 10) == 1
        with pytest.raises(NotFound):
            await store.operations.get(held.id)

    async def test_the_end_says_why(self, store: Store) -> None:
        held = await begun(store)
        assert (held.state, held.started_at) == (OperationState.WORKING, NOW)
        ended = await store.operations.end(held.proof, OperationState.FAILED, "no\0", NOW + 1)
        assert (ended.error, ended.holder) == ("no\ufffd", "")


class RequestActPromises:
    async def test_a_retry_and_its_position_are_one_change(self, store: Store) -> None:
        numbers = await dead(store)
        held = await begun(store, list(numbers))
        part = await store.operations.part(held.proof)
        assert part is not None
        text = "state:dead error:network"
        acted = await store.operations.act(held.proof, part, "retry", wanted(text), NOW)
        assert acted.changed == 6
        skipped = ("skipped", "no longer matches the filter")
        assert counts(acted.operation) == {("done", ""): 6, skipped: 4}
        assert acted.operation.settled == 10
        with pytest.raises(LostLease):
            await store.operations.act(held.proof, part, "retry", wanted(text), NOW)
        found = await ledger(store)
        assert (found.waiting, found.dead) == (6, 3)

    async def test_what_died_later_is_not_retried(self, store: Store) -> None:
        numbers = await dead(store)
        held = await begun(store, numbers[:9])
        part = OperationPart(1, list(numbers[:9]))
        before = wanted("state:dead", NOW - 1)
        acted = await store.operations.act(held.proof, part, "retry", before, NOW)
        assert counts(acted.operation) == {("skipped", "is not dead"): 9}
        assert (await ledger(store)).dead == 9

    async def test_a_run_decides_what_is_allowed(self, store: Store) -> None:
        numbers = (await dead(store))[:9]
        for act, state, result in (
            ("forget", RunState.RUNNING, ("skipped", "its run has not ended")),
            ("retry", RunState.CANCELLED, ("skipped", "its run is cancelled")),
            ("forget", RunState.CANCELLED, ("done", "")),
            ("forget", RunState.CANCELLED, ("skipped", "no longer matches the filter")),
        ):
            if state is not RunState.RUNNING:
                await store.runs.move("run", state, "", NOW)
            held = await begun(store, numbers)
            part = OperationPart(1, list(numbers))
            acted = await store.operations.act(
                held.proof,
                part,
                act,  # type: ignore[arg-type] # one of four words
                wanted("state:dead"),
                NOW,
            )
            assert counts(acted.operation) == {result: 9}
            await store.operations.end(held.proof, OperationState.DONE, "", NOW)

    async def test_open_requests_are_cancelled_and_leased_ones_are_not(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", rows(6), NOW)
        block, *_ = await leased_blocks(store, (await pack(store, size=2))[:1])
        found = await store.targets.page(wanted("run:run"), ALIVE, "", "", 100)
        held = await begun(store, found.keys)
        part = OperationPart(1, found.keys)
        acted = await store.operations.act(held.proof, part, "cancel", wanted("run:run"), NOW)
        leased = ("skipped", "leased to an agent")
        n = len(ids(block))
        assert counts(acted.operation) == {("done", ""): 6 - n, leased: n}
        after = await ledger(store)
        assert (after.cancelled, after.leased) == (6 - n, n)
        await store.operations.end(held.proof, OperationState.DONE, "", NOW)
        held = await begun(store, found.keys)
        acted = await store.operations.act(held.proof, part, "give_up", wanted("run:run"), NOW)
        assert counts(acted.operation) == {("skipped", "is not dead"): 6}


class FilterTargetPromises:
    async def test_the_set_ends_at_its_start(self, store: Store) -> None:
        """Rows that are made or die later are not in it, although they match."""
        numbers = await dead(store)
        held = await store.operations.add(asked(), 100, NOW)
        await dead(store, "second")
        await store.requests.accept("run", rows(5, start=100), NOW + 9)
        page = await store.targets.page(wanted("state:dead"), ALIVE, "", held.bound, 100)
        assert page.keys == numbers[:9]
        assert page.next is None
        early = await store.targets.page(wanted("state:dead", NOW - 1), ALIVE, "", held.bound, 100)
        assert early.keys == []

    async def test_pages_have_every_key_once(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", rows(25), NOW)
        found: list[Any] = []
        position: str | None = ""
        while position is not None:
            page = await store.targets.page(wanted("run:run"), ALIVE, position, "", 4)
            found += page.keys
            position = page.next
        assert len(found) == len(set(found)) == 25
        assert found == sorted(found)
        count = await store.targets.count(wanted("run:run"), ALIVE)
        assert (count.n, count.exact) == (25, True)
        assert await store.targets.runs_of(found[:3]) == ["run"]
        some = await store.targets.matching(wanted("uri:host/1"), ALIVE, found[:12])
        assert len(some) == 3

    async def test_other_objects_are_found_by_name(self, store: Store) -> None:
        for name in ("r1", "r2", "x1"):
            await new_run(store, name)
        await store.runs.move("r2", RunState.PAUSED, "", NOW)
        for name in ("j1", "j2"):
            await store.jobs.save(Job(name, customer=name.upper()), None, "anna", NOW)
        for name in ("a1", "a2"):
            await store.agents.register(Registration(name, name, group=f"g-{name}"), NOW)
        for table, text, expected in (
            (RUNS, "id:r*", ["r1", "r2"]),
            (RUNS, "state:running", ["r1", "x1"]),
            (JOBS, "customer:J2", ["j2"]),
            (AGENTS, "group:g-a1", ["a1"]),
            (AGENTS, "state:alive", ["a1", "a2"]),
        ):
            filter_ = read_filter(text, table, LATER)
            page = await store.targets.page(filter_, ALIVE, "", "", 10)
            assert page.keys == expected, text
            assert await store.targets.matching(filter_, ALIVE, [*expected, "ghost"]) == {*expected}
            examples = await store.targets.examples(filter_, ALIVE, 1)
            assert [one.key for one in examples] == expected[:1]

    async def test_live_lists_show_what_people_see(self, store: Store) -> None:
        """Newest first, without settings and without times that change by themselves."""
        numbers = await dead(store)
        await new_run(store, "second")
        await store.jobs.save(Job("j1"), None, "anna", NOW)
        await store.agents.register(Registration("a1", "one"), NOW)
        live = store.live
        run, old = await live.page(read_filter("", RUNS, LATER), ALIVE, 10)
        assert (run.key, old.key) == ("second", "run")
        assert (old.data["accepted"], old.data["dead"], old.data["done"]) == (10, 9, 1)
        assert "settings" not in old.data
        found = await live.page(wanted("state:dead"), ALIVE, 3)
        assert [one.key for one in found] == [str(one) for one in numbers[8:5:-1]]
        assert found[0].data["state"] == "dead"
        (job,) = await live.page(read_filter("name:j1", JOBS, LATER), ALIVE, 10)
        assert (job.data["name"], job.data["state"]) == ("j1", "enabled")
        (agent,) = await live.page(read_filter("state:alive", AGENTS, LATER), ALIVE, 10)
        await store.agents.heartbeat([("a1", Vitals())], NOW + 1)
        assert await live.page(read_filter("", AGENTS, LATER), ALIVE, 10) == [agent]
        (silent,) = await live.page(read_filter("", AGENTS, LATER + 99), ALIVE, 10)
        assert silent.data["state"] == "dead"

    async def test_requests_are_found_by_the_labels_of_their_run(self, store: Store) -> None:
        await new_run(store)
        labelled = Run("eu", "job", RunState.RUNNING, RunSettings(), NOW, labels={"eu": ""})
        await store.runs.create(labelled)
        for run, count in (("run", 3), ("eu", 2)):
            await store.requests.accept(run, rows(count), NOW)
        found = await store.targets.count(wanted("label:eu"), ALIVE)
        assert (found.n, found.exact) == (2, True)
        page = await store.targets.page(wanted("label:eu"), ALIVE, "", "", 10)
        assert await store.targets.runs_of(page.keys) == ["eu"]
