"""Conformance tests of a store for leases and reports. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import InvalidInput, UnknownBlock
from skep.model.block import BlockRef, BlockReport, Held
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.states import BlockState, RequestState, RunState
from skep.store.ports import Store
from skep.store.ports.blocks import Placed, RetryRule, Settlement
from skep.testing.conformance.store.ground import LATER, LEASE_LIMIT, NOW, history, ledger, rows
from skep.testing.conformance.store.leasing import lease, leased, leased_one, pack, packed
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement, works


class LeasePromises:
    async def test_a_lease_raises_the_token_and_keeps_the_order(self, store: Store) -> None:
        refs = await packed(store, 30)
        backwards = [ref.id for ref in reversed(refs)]
        blocks = await lease(store, [backwards[0], 10**9, *backwards, backwards[0]])
        assert [block.id for block in blocks] == backwards
        assert {block.token for block in blocks} == {1}
        assert {(block.run, block.size) for block in blocks} == {("run", 10)}
        assert await lease(store, refs) == [], "they are leased"
        await store.blocks.give_back([block.held for block in blocks], "agent", NOW, "x")
        again = await lease(store, refs[:1], "other")
        assert [block.token for block in again] == [2]
        assert await store.blocks.lease([], "agent", NOW, LATER) == []

    async def test_only_running_runs_hand_out(self, store: Store) -> None:
        refs = await packed(store, 10)
        await store.runs.move("run", RunState.PAUSED)
        assert await lease(store, refs) == []
        assert await store.blocks.claimable(10) == []
        await store.runs.move("run", RunState.RUNNING)
        assert await store.blocks.claimable(10) == refs
        assert len(await lease(store, refs)) == 1

    async def test_claimable_is_what_lanes_are_rebuilt_from(self, store: Store) -> None:
        refs = await packed(store, 40)
        first, second, third, fourth = await lease(store, refs)
        assert await store.blocks.claimable(10) == []
        await store.blocks.give_back([third.held], "agent", NOW, "x")
        half = done(ids(second)[:5])
        await settle(store, settlement(second, half), settlement(first, done(ids(first))))
        assert await store.blocks.claimable(10) == [BlockRef(second.id, "run", 5, 5), refs[2]]
        assert await store.blocks.claimable(1) == [BlockRef(second.id, "run", 5, 5)]
        await settle(store, settlement(fourth, done(ids(fourth))))

    async def test_renewing_tells_what_is_lost(self, store: Store) -> None:
        mine, taken, ended = await leased(store, 30)
        await store.blocks.give_back([taken.held], "agent", NOW, "x")
        await lease(store, [taken.id], "other")
        await settle(store, settlement(ended, done(ids(ended))))
        held = [mine.held, taken.held, ended.held, Held(10**9, 1), Held(mine.id, 7)]
        lost = await store.blocks.renew(held[:4], "agent", LATER + 50)
        assert lost == [taken.id, ended.id, 10**9]
        assert (await store.blocks.get(mine.id)).lease_until == LATER + 50
        assert (await store.blocks.get(taken.id)).lease_until == LATER
        assert await store.blocks.renew([mine.held], "other", LATER) == [mine.id]
        assert await store.blocks.renew([held[4]], "agent", LATER) == [mine.id]
        assert await store.blocks.renew([], "agent", LATER) == []
        asks = [("agent", [held[4], held[0]]), ("other", [held[0]]), ("third", [])]
        assert await store.blocks.renew_many(asks, LATER + 60) == [[mine.id], [held[0].block], []]
        assert await store.blocks.renew_many([], LATER) == []

    async def test_given_back_is_ready_at_once(self, store: Store) -> None:
        one, two = await leased(store, 20)
        await settle(store, settlement(one, done(ids(one)[:4]), final=False))
        wrong = [Held(one.id, 9), Held(10**9, 1)]
        assert await store.blocks.give_back(wrong, "agent", NOW, "x") == []
        assert await store.blocks.give_back([one.held], "other", NOW, "x") == []
        assert await store.blocks.give_back([], "agent", NOW, "x") == []
        refs = await store.blocks.give_back([one.held, two.held], "agent", NOW, "drain")
        assert refs == [BlockRef(one.id, "run", 5, 6), BlockRef(two.id, "run", 5, 10)]
        assert await store.blocks.give_back([one.held], "agent", NOW, "drain") == []
        assert await ledger(store) == Ledger(accepted=20, queued=16, done=4)
        assert (await history(store, one.id))[-1] == ("RETRY", "given back by agent: drain")
        assert await settle(store, settlement(one, done(ids(one)))) == ["stale"]
        (again,) = await lease(store, [one.id])
        assert sorted(again.skip) == ids(one)[:4]

    async def test_a_block_as_people_see_it(self, store: Store) -> None:
        with pytest.raises(UnknownBlock, match="12345678"):
            await store.blocks.get(12345678)
        (block,) = await leased(store, 10)
        view = await store.blocks.get(block.id)
        assert (view.run, view.state, view.agent) == ("run", BlockState.USING, "agent")
        assert (view.size, view.open, view.token) == (10, 10, 1)
        assert (view.lease_until, view.created_at, view.priority) == (LATER, NOW, 5)

    async def test_every_change_of_a_block_is_a_line(self, store: Store) -> None:
        """C7: the states of a block in order, each with its reason."""
        (block,) = await leased(store, 10)
        await store.blocks.reap(LATER + 1, [], LEASE_LIMIT, 10)
        (again,) = await lease(store, [block.id], "second")
        await store.blocks.give_back([again.held], "second", NOW, "stop")
        (third,) = await lease(store, [block.id], "third")
        await settle(store, settlement(third, done(ids(block)[:5]), agent="third"))
        (last,) = await lease(store, [block.id], "fourth")
        await settle(store, settlement(last, done(ids(block)[5:]), agent="fourth"))
        assert await history(store, block.id) == [
            ("READY", "packed"),
            ("USING", "leased to agent"),
            ("RETRY", "the lease of agent agent expired"),
            ("USING", "leased to second"),
            ("RETRY", "given back by second: stop"),
            ("USING", "leased to third"),
            ("RETRY", "reported in part; the rest will be leased again"),
            ("USING", "leased to fourth"),
            ("SUCCESS", "every request was downloaded"),
        ]
        times = [change.at for change in await store.blocks.history(block.id)]
        assert times[2] == LATER + 1
        assert await store.blocks.history(10**9) == []


class SettlePromises:
    async def test_an_outcome_is_stored_with_its_attempt(self, store: Store) -> None:
        block = await leased_one(store, 2)
        a, b = ids(block)
        outcome = Outcome(
            a,
            "",
            301,
            "ok: ü 💧",
            1234567,
            2**33,
            2**34,
            "2001:db8::1",
            4,
            6,
            final_uri="http://ж/",
        )
        lost = Outcome(b, failure="network", detail="reset\0by peer", retry_after=3.5)
        placed = Placed("segment-1", 2**32)
        item = settlement(block, [outcome, lost], frames=b"x" * 10, placed=placed)
        (verdict,) = await store.blocks.settle([item], NOW + 0.25)
        assert (verdict.block, verdict.verdict, verdict.stored) == (block.id, "stored", 2)
        (attempt,) = await store.requests.attempts(a)
        assert (attempt.request, attempt.block, attempt.token) == (a, block.id, 1)
        assert (attempt.agent, attempt.at) == ("agent", NOW + 0.25)
        assert (attempt.failure, attempt.status, attempt.detail) == ("", 301, "ok: ü 💧")
        assert (attempt.elapsed_us, attempt.sent, attempt.received) == (1234567, 2**33, 2**34)
        assert (attempt.address, attempt.final_uri) == ("2001:db8::1", "http://ж/")
        assert (attempt.segment, attempt.offset, attempt.length) == ("segment-1", 2**32 + 4, 6)
        (other,) = await store.requests.attempts(b)
        assert (other.failure, other.segment, other.length) == ("network", "", 0)
        assert other.detail == "reset\ufffdby peer", (
            "no database refuses a report because of its text"
        )
        assert await store.segments.committed_end("segment-1") == 2**32 + 10
        assert await store.segments.committed_end("segment-2") == 0

    async def test_verdicts(self, store: Store) -> None:
        block, other = await leased(store, 20)
        good = settlement(block, done(ids(block)))
        unknown = Settlement(BlockReport(10**9, 1, []), "agent", RetryRule({}))
        calls = [
            settlement(block, done(ids(block)), token=2),
            settlement(block, done(ids(block)), agent="thief"),
            unknown,
            good,
            good,
        ]
        verdicts = await store.blocks.settle(calls, NOW)
        assert [v.verdict for v in verdicts] == ["stale", "stale", "unknown", "stored", "duplicate"]
        assert [v.stored for v in verdicts] == [0, 0, 0, 10, 0]
        assert await settle(store, good) == ["duplicate"]
        assert await ledger(store) == Ledger(accepted=20, leased=10, done=10)
        assert (await store.blocks.get(block.id)).state is BlockState.SUCCESS
        assert await store.blocks.settle([], NOW) == []
        assert len(await store.requests.attempts(ids(block)[0])) == 1
        assert (await store.blocks.get(other.id)).open == 10

    async def test_an_old_token_is_fenced_out(self, store: Store) -> None:
        block = await leased_one(store, 3)
        await store.blocks.reap(LATER + 1, [], LEASE_LIMIT, 10)
        assert await settle(store, settlement(block, done(ids(block)))) == ["stale"]
        (again,) = await lease(store, [block.id], "other")
        assert await settle(store, settlement(block, done(ids(block)))) == ["stale"]
        assert (await ledger(store)).leased == 3
        late = settlement(again, done(ids(again)), agent="other")
        assert await settle(store, late) == ["stored"]

    async def test_in_parts_and_then_the_rest(self, store: Store) -> None:
        block = await leased_one(store, 10)
        numbers = ids(block)
        part = settlement(block, done(numbers[:3]), final=False)
        assert await settle(store, part) == ["stored"]
        assert await settle(store, part) == ["duplicate"]
        assert (await store.blocks.get(block.id)).open == 7
        assert await ledger(store) == Ledger(accepted=10, leased=7, done=3)
        overlap = settlement(block, done(numbers[2:5]), final=False)
        (verdict,) = await store.blocks.settle([overlap], NOW)
        assert (verdict.verdict, verdict.stored) == ("stored", 2)
        last = settlement(block, done(numbers[5:]), final=True)
        assert await settle(store, last) == ["stored"]
        assert (await store.blocks.get(block.id)).state is BlockState.SUCCESS

    async def test_a_last_report_that_leaves_some_open(self, store: Store) -> None:
        block = await leased_one(store, 10)
        numbers = ids(block)
        part = settlement(block, done(numbers[:4]))
        assert await settle(store, part) == ["stored"]
        assert (await store.blocks.get(block.id)).state is BlockState.RETRY
        assert await ledger(store) == Ledger(accepted=10, queued=6, done=4)
        assert await settle(store, part) == ["duplicate"]
        (again,) = await lease(store, [block.id], "other")
        assert sorted(again.skip) == numbers[:4]
        assert [w.id for w in works(again) if w.id not in again.skip] == numbers[4:]
        rest = settlement(again, done(numbers), agent="other")
        (verdict,) = await store.blocks.settle([rest], NOW)
        assert (verdict.verdict, verdict.stored) == ("stored", 6)

    async def test_an_empty_last_report_gives_all_back(self, store: Store) -> None:
        block = await leased_one(store, 3)
        assert await settle(store, settlement(block, [], final=False)) == ["duplicate"]
        assert await settle(store, settlement(block, [])) == ["stored"]
        assert await ledger(store) == Ledger(accepted=3, queued=3)

    async def test_failures_wait_or_die(self, store: Store) -> None:
        block = await leased_one(store, 4)
        a, b, c, d = ids(block)
        outcomes = failed([a]) + failed([b], "status") + done([c, d])
        assert await settle(store, settlement(block, outcomes, {a: NOW + 9.5, c: 1.0})) == [
            "stored"
        ]
        assert await ledger(store) == Ledger(accepted=4, delayed=1, dead=1, done=2)
        assert (await store.blocks.get(block.id)).state is BlockState.FAILED
        view = await store.requests.get(a)
        assert (view.failures, view.not_before, view.block) == (1, NOW + 9.5, None)
        assert (await store.requests.get(b)).state is RequestState.DEAD

    async def test_a_request_of_another_block_spoils_the_call(self, store: Store) -> None:
        """Nothing is stored, whatever form the report has."""
        mine, other = await leased(store, 20)
        swapped = [settlement(mine, done(ids(other))), settlement(other, done(ids(mine)))]
        foreign = settlement(mine, done([*ids(mine), 10**9]))
        for calls in ([swapped[0]], swapped, [settlement(other, done(ids(other))), foreign]):
            with pytest.raises(InvalidInput, match="not in it"):
                await store.blocks.settle(calls, NOW)
        assert await ledger(store) == Ledger(accepted=20, leased=20)
        await settle(store, settlement(mine, done(ids(mine)[:2]), final=False))
        with pytest.raises(InvalidInput, match="not in it"):
            await settle(store, settlement(mine, done([ids(other)[0]]), final=False))
        assert await ledger(store) == Ledger(accepted=20, leased=18, done=2)

    async def test_one_request_twice_in_a_report_counts_once(self, store: Store) -> None:
        block = await leased_one(store, 3)
        a, b, c = ids(block)
        first = settlement(block, done([a]) + failed([a]), final=False)
        second = settlement(block, failed([a]) + done([b, c]))
        verdicts = await store.blocks.settle([first, second], NOW)
        assert [(v.verdict, v.stored) for v in verdicts] == [("stored", 1), ("stored", 2)]
        assert await ledger(store) == Ledger(accepted=3, done=3)

    async def test_the_same_report_twice_at_once(self, store: Store, other_store: Store) -> None:
        blocks = await leased(store, 100)
        items = [settlement(block, done(ids(block))) for block in blocks]
        centers = (store, other_store) * 4
        answers = await asyncio.gather(*(c.blocks.settle(items, NOW) for c in centers))
        for number in range(len(items)):
            verdicts = sorted(answer[number].verdict for answer in answers)
            assert verdicts == ["duplicate"] * 7 + ["stored"]
        assert await ledger(store) == Ledger(accepted=100, done=100)


class ReapPromises:
    async def test_a_lease_that_ran_out_is_taken_back(self, store: Store) -> None:
        one, two = await leased(store, 20)
        await store.blocks.renew([two.held], "agent", LATER + 50)
        assert await store.blocks.reap(LATER, [], LEASE_LIMIT, 10) == []
        (freed,) = await store.blocks.reap(LATER + 1, [], LEASE_LIMIT, 10)
        assert (freed.block, freed.agent) == (one.id, "agent")
        assert freed.ref == BlockRef(one.id, "run", 5, 10)
        assert "expired" in freed.reason
        assert await ledger(store) == Ledger(accepted=20, queued=10, leased=10)
        assert (await store.requests.get(ids(one)[0])).failures == 0, "a loss is not a failure"

    async def test_the_dead_lose_their_blocks_at_once(self, store: Store) -> None:
        refs = await packed(store, 30)
        await lease(store, refs[:1], "alive")
        await lease(store, refs[1:], "dead")
        first = await store.blocks.reap(NOW, ["dead", "nobody"], LEASE_LIMIT, 1)
        rest = await store.blocks.reap(NOW, ["dead", "nobody"], LEASE_LIMIT, 10)
        assert [freed.block for freed in (*first, *rest)] == [ref.id for ref in refs[1:]]
        assert {freed.reason for freed in rest} == {"agent dead is gone"}
        assert await ledger(store) == Ledger(accepted=30, queued=20, leased=10)

    async def test_a_block_lost_too_often_is_given_up(self, store: Store) -> None:
        block = await leased_one(store, 3)
        await settle(store, settlement(block, done(ids(block)[:1]), final=False))
        (freed,) = await store.blocks.reap(LATER + 1, [], 1, 10)
        assert freed.ref is None
        assert await ledger(store) == Ledger(accepted=3, done=1, dead=2)
        (attempt,) = await store.requests.attempts(ids(block)[1])
        assert (attempt.failure, attempt.agent, attempt.token) == ("lost", "agent", 1)
        assert await settle(store, settlement(block, done(ids(block)))) == ["stale"]
        (finished,) = await store.blocks.finished("run", 10)
        states = [(r.state, r.failure) for r in finished.requests]
        assert states == [("done", ""), ("dead", "lost"), ("dead", "lost")]

    async def test_after_three_losses_each_request_stands_alone(self, store: Store) -> None:
        block = await leased_one(store, 4)
        await settle(store, settlement(block, done(ids(block)[:1]), final=False))
        for _ in range(2):
            await store.blocks.reap(LATER + 1, [], LEASE_LIMIT, 10)
            await lease(store, [block.id])
        freed = await store.blocks.reap(LATER + 1, [], LEASE_LIMIT, 10)
        refs = [item.ref for item in freed if item.ref]
        assert [(ref.size, ref.run, ref.priority) for ref in refs] == [(1, "run", 5)] * 3
        assert await ledger(store) == Ledger(accepted=4, done=1, queued=3)
        singles = await lease(store, refs)
        assert [ids(single) for single in singles] == [[number] for number in ids(block)[1:]]
        assert (await history(store, singles[0].id))[0] == ("READY", f"split off block {block.id}")
        assert (
            await settle(store, *(settlement(s, done(ids(s))) for s in singles)) == ["stored"] * 3
        )

    async def test_a_request_that_kills_agents_dies_alone(self, store: Store) -> None:
        block = await leased_one(store, 4)
        poison = ids(block)[2]
        in_hands = [block]
        for _ in range(40):
            killed = [b for b in in_hands if poison in ids(b)]
            fine = [settlement(b, done(ids(b))) for b in in_hands if poison not in ids(b)]
            await settle(store, *fine)
            freed = await store.blocks.reap(LATER + 1, [], LEASE_LIMIT, 10) if killed else []
            in_hands = await lease(store, [item.ref for item in freed if item.ref])
            if not in_hands:
                break
        assert await ledger(store) == Ledger(accepted=4, done=3, dead=1)
        assert (await store.requests.get(poison)).state is RequestState.DEAD

    async def test_an_agent_that_came_back_with_less(self, store: Store) -> None:
        one, two, three = await leased(store, 30)
        freed = await store.blocks.abandon("agent", [two.held], NOW, LEASE_LIMIT)
        assert [item.block for item in freed] == [one.id, three.id]
        assert await store.blocks.abandon("agent", [two.held], NOW, LEASE_LIMIT) == []
        assert await store.blocks.abandon("nobody", [], NOW, LEASE_LIMIT) == []
        assert await ledger(store) == Ledger(accepted=30, queued=20, leased=10)


class FinishedPromises:
    async def test_a_run_reads_what_ended_and_ticks_it_off(self, store: Store) -> None:
        blocks = await leased(store, 30)
        a, b, *_ = ids(blocks[0])
        outcomes = failed([a]) + failed([b], "content") + done(ids(blocks[0])[2:])
        await settle(store, settlement(blocks[0], outcomes, {a: LATER}))
        await settle(store, settlement(blocks[1], done(ids(blocks[1]))))
        first, second = await store.blocks.finished("run", 10)
        assert (first.id, first.run, first.agent) == (blocks[0].id, "run", "agent")
        assert [r.id for r in first.requests] == ids(blocks[0])[1:], "one waits for its retry"
        assert (first.requests[0].state, first.requests[0].failure) == ("dead", "content")
        assert (first.requests[1].state, first.requests[1].status) == ("done", 200)
        assert len(await store.blocks.finished("run", 1)) == 1
        assert await store.blocks.collect("run", [first.id, blocks[2].id, 10**9]) == 1
        assert await store.blocks.collect("run", [first.id]) == 0
        assert await store.blocks.collect("run", []) == 0
        assert [block.id for block in await store.blocks.finished("run", 10)] == [second.id]

    async def test_a_retried_request_is_read_from_its_last_block(self, store: Store) -> None:
        block = await leased_one(store, 2)
        a, b = ids(block)
        await settle(store, settlement(block, failed([a]) + done([b]), {a: NOW}))
        await store.requests.wake(NOW, 10)
        (again,) = await lease(store, await pack(store))
        await settle(store, settlement(again, done([a])))
        read = await store.blocks.finished("run", 10)
        assert [[r.id for r in found.requests] for found in read] == [[b], [a]]
        assert [attempt.failure for attempt in await store.requests.attempts(a)] == ["timeout", ""]

    async def test_runs_do_not_read_each_other(self, store: Store) -> None:
        one = await leased_one(store, 1, "one")
        two = await leased_one(store, 1, "two")
        await settle(store, settlement(one, done(ids(one))), settlement(two, done(ids(two))))
        assert [block.id for block in await store.blocks.finished("one", 10)] == [one.id]
        assert await store.blocks.collect("one", [two.id]) == 0
        await store.requests.accept("one", rows(1, start=5), NOW)
