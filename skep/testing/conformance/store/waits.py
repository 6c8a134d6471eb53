"""Conformance tests of a store for explanations of waits. Part of `StoreConformance`."""

from __future__ import annotations

import msgspec
import pytest

from skep.errors import NotFound, UnknownBlock, UnknownRun
from skep.model.block import Leased
from skep.model.hosts.host import SiteNote, SiteRule
from skep.model.hosts.politeness import Politeness
from skep.model.states import BlockState, RequestState, RunState
from skep.store.ports import Store
from skep.store.ports.requests import PackPlan, RequestRow
from skep.store.ports.waits import Delayed, DriverFacts, InHand
from skep.testing.conformance.store.ground import LATER, NOW, new_run, row, rows
from skep.testing.conformance.store.leasing import lease, leased_one, pack
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement

HOST = "slow.example"
POLITENESS = Politeness()


def slow_rows(count: int) -> list[RequestRow]:
    """Requests of a host with a rate limit: one window of them fits into a block."""
    named = (row(f"slow{number}") for number in range(count))
    return [msgspec.structs.replace(one, host=HOST) for one in named]


async def paced(store: Store, count: int = 5) -> tuple[Leased, list[int]]:
    """A run with requests of one host, 5 s apart: some in a block, the others parked. Returns the
    block and the ids of all requests."""
    await new_run(store)
    await store.hosts.set_rule(HOST, SiteRule(rate=0.2), NOW)
    await store.requests.accept("run", slow_rows(count), NOW)
    packing = await store.requests.pack([PackPlan("run", 5, 100, 100)], NOW, POLITENESS)
    (block,) = await lease(store, packing.blocks)
    assert packing.parked == count - block.size > 1
    first = min(ids(block))
    return block, list(range(first, first + count))


class WaitPromises:
    async def test_who_is_not_there_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.waits.request(1)
        with pytest.raises(UnknownBlock):
            await store.waits.block(1)
        with pytest.raises(UnknownRun):
            await store.waits.run("run")
        nobody = await store.waits.site(HOST)
        assert (nobody.site.host, nobody.known, nobody.hold) == (HOST, False, None)

    async def test_a_waiting_request_knows_what_is_before_it(self, store: Store) -> None:
        await new_run(store, retries=2)
        await store.requests.accept("run", rows(4, expires_at=NOW + 9), NOW)
        await store.requests.accept("run", rows(3, priority=1, start=10), NOW)
        block = (await lease(store, await pack(store, limit=1)))[0]
        (taken,) = ids(block)
        found = await store.waits.request(taken + 3)
        assert (found.state, found.before, found.priority) == (RequestState.WAITING, 2, 5)
        assert (found.run.id, found.run.settings.retries) == ("run", 2)
        assert (found.expires_at, found.block, found.last) == (NOW + 9, None, None)
        assert (found.host.site.host, found.host.known) == ("host", False)

    async def test_a_request_in_a_block_knows_the_block(self, store: Store) -> None:
        block = await leased_one(store, 3)
        found = await store.waits.request(ids(block)[0])
        assert found.state is RequestState.QUEUED
        assert found.block is not None
        assert (found.block.id, found.block.state) == (block.id, BlockState.USING)
        assert (found.block.agent, found.block.lease_until) == ("agent", LATER)
        assert (found.block.changed_at, found.block.size, found.block.open) == (NOW, 3, 3)
        await settle(store, settlement(block, done(ids(block))))
        over = await store.waits.request(ids(block)[0])
        assert (over.state, over.block) == (RequestState.DONE, None)
        assert over.last is not None
        assert (over.last.agent, over.last.status, over.last.failure) == ("agent", 200, "")

    async def test_a_retry_knows_its_last_try(self, store: Store) -> None:
        block = await leased_one(store, 1)
        (number,) = ids(block)
        again = {number: NOW + 50}
        await settle(store, settlement(block, failed([number]), again), now=NOW + 1)
        found = await store.waits.request(number)
        assert (found.state, found.failures) == (RequestState.DELAYED, 1)
        assert (found.not_before, found.before) == (NOW + 50, 0)
        assert found.last is not None
        assert (found.last.failure, found.last.detail) == ("timeout", "no answer")

    async def test_a_parked_request_knows_its_host_and_who_has_it(self, store: Store) -> None:
        block, numbers = await paced(store)
        found = await store.waits.request(numbers[-1])
        assert (found.state, found.failures) == (RequestState.DELAYED, 0)
        hold = found.host.hold
        assert hold is not None
        assert (hold.run, hold.agent, hold.state) == ("run", "agent", BlockState.USING)
        assert (hold.block, hold.open) == (block.id, block.size)
        assert found.before == len(numbers) - block.size - 1
        assert found.host.site.rule == SiteRule(rate=0.2)
        held = await store.waits.block(block.id)
        assert [host.site.host for host in held.hosts] == [HOST]
        assert await store.waits.site(HOST) == found.host

    async def test_a_host_that_cools_says_so(self, store: Store) -> None:
        block, numbers = await paced(store)
        report = settlement(block, failed(numbers[:1]), {numbers[0]: NOW + 9})
        note = SiteNote(HOST, 1, 1, 1, left=True, trouble="429", cool=300.0)
        note.deferred = numbers[1 : block.size]
        report.report.sites.append(note)
        await settle(store, report, now=NOW + 1)
        found = await store.waits.site(HOST)
        assert (found.site.cooling_until, found.site.reason) == (NOW + 301, "429")
        assert found.hold is not None
        assert found.hold.block is None, "let go"

    async def test_a_block_knows_what_its_agent_took_before(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", rows(30), NOW)
        refs = await pack(store)
        first, second, third = await lease(store, refs)
        await settle(store, settlement(first, done(ids(first)[:4]), final=False))
        found = await store.waits.block(third.id)
        assert found.ahead == InHand("agent", 2, 16)
        assert (found.run.id, found.hosts) == ("run", [])
        assert (await store.waits.block(first.id)).ahead is None
        await settle(store, settlement(second, done(ids(second))))
        ended = await store.waits.block(second.id)
        assert (ended.block.state, ended.ahead) == (BlockState.SUCCESS, None)

    async def test_a_run_knows_where_everything_of_it_is(self, store: Store) -> None:
        await new_run(store)
        await new_run(store, "other")
        await store.requests.accept("run", rows(30), NOW)
        await store.requests.accept("run", rows(5, priority=-1, start=50), NOW)
        await store.requests.accept("other", rows(10, start=100), NOW)
        mine = await lease(store, await pack(store, limit=20), "a1")
        await lease(store, await pack(store, "other"), "a1")
        first, second = mine
        again = {number: NOW + 90 + number for number in ids(first)[:3]}
        outcomes = [*failed(ids(first)[:3]), *done(ids(first)[3:])]
        await settle(store, settlement(first, outcomes, again, agent="a1"))
        found = await store.waits.run("run")
        assert found.ledger == await store.ledgers.read("run")
        assert found.priorities == (-1, 5)
        assert found.in_hands == [InHand("a1", 1, 10)]
        assert found.delayed == [Delayed(n, "host", 1, at) for n, at in again.items()]
        assert list(found.hosts) == ["host"]
        assert (found.driver, found.unread) == (None, first.size - len(again))
        assert await store.blocks.strange("run", [10**9, first.id, 7_777]) == [10**9, 7_777]
        assert await store.blocks.collect("run", [first.id]) == 1
        await store.checkpoints.take_over("run", 60.0, NOW + 5)
        found = await store.waits.run("run")
        assert (found.driver, found.unread) == (DriverFacts(NOW + 5, 60.0), 0)
        await settle(store, settlement(second, done(ids(second)), agent="a1"))

    async def test_a_run_that_rests_and_one_without_requests(self, store: Store) -> None:
        await new_run(store)
        await store.runs.move("run", RunState.PAUSED, "lunch", NOW + 3)
        found = await store.waits.run("run")
        assert (found.run.state, found.run.reason) == (RunState.PAUSED, "lunch")
        assert found.run == await store.runs.get("run")
        assert (found.ledger.accepted, found.priorities, found.delayed) == (0, (), [])
