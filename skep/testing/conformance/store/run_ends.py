"""Conformance tests of a store for ends of runs, their drivers and their counts (R2, R3, R5).
Part of `StoreConformance`."""

from __future__ import annotations

import msgspec
import pytest

from skep.errors import Conflict, StaleToken, UnknownRun
from skep.model.ledger import Ledger
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.checkpoints import DriverRequests, ItemRow
from skep.testing.conformance.store.ground import LATER, NOW, history, ledger, new_run, rows
from skep.testing.conformance.store.leasing import lease, leased, leased_one, pack
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement


class EndPromises:
    async def test_a_run_keeps_why_it_is_in_its_state(self, store: Store) -> None:
        await new_run(store)
        failed_run = await store.runs.move("run", RunState.FAILED, "no\0answer " * 1000, NOW + 5)
        assert await store.runs.get("run") == failed_run
        assert failed_run.reason.startswith("no\ufffdanswer ")
        assert failed_run.changed_at == NOW + 5
        going_on = await store.runs.move("run", RunState.RUNNING, "", NOW + 6)
        assert (await store.runs.get("run")).reason == going_on.reason == ""

    async def test_a_failed_run_rests_and_can_go_on(self, store: Store) -> None:
        await new_run(store)
        await store.runs.move("run", RunState.FAILED, "why", NOW)
        assert (await store.requests.accept("run", rows(3), NOW)).new == 3
        assert await pack(store) == []
        await store.runs.move("run", RunState.RUNNING, "", NOW)
        assert len(await pack(store)) == 1

    async def test_only_the_newest_driver_ends_a_run(self, store: Store) -> None:
        await new_run(store)
        old, new = [await store.checkpoints.take_over("run", 60.0, NOW) for _ in range(2)]
        with pytest.raises(StaleToken):
            await store.checkpoints.end("run", old, RunState.FINISHED, "", NOW)
        await store.checkpoints.end("run", new, RunState.FAILED, "memory limit: too much", NOW)
        run = await store.runs.get("run")
        assert (run.state, run.reason) == (RunState.FAILED, "memory limit: too much")

    async def test_a_finished_run_leaves_nothing_open(self, store: Store) -> None:
        """Leased requests end with their report: done on success, else cancelled."""
        blocks = await leased(store, 9, size=3)
        await store.requests.accept("run", rows(6, start=100), NOW)
        await pack(store, limit=3)
        driver = await store.checkpoints.take_over("run")
        await store.checkpoints.end("run", driver, RunState.FINISHED, "page limit", NOW)
        assert await ledger(store) == Ledger(accepted=15, leased=9, cancelled=6)
        reported = settlement(blocks[0], [*done(ids(blocks[0])[:1]), *failed(ids(blocks[0])[1:2])])
        assert await settle(store, reported) == ["stored"]
        await store.blocks.give_back([blocks[1].held], "agent", NOW, "leaving")
        await store.blocks.reap(LATER + 1, [], 10, 10)
        assert await ledger(store) == Ledger(accepted=15, done=1, cancelled=14)
        assert "the run was finished" in (await history(store, blocks[2].id))[-1][1]

    async def test_a_cancelled_run_cannot_be_finished(self, store: Store) -> None:
        await new_run(store)
        driver = await store.checkpoints.take_over("run")
        await store.runs.move("run", RunState.CANCELLED, "by message", NOW)
        with pytest.raises(Conflict):
            await store.checkpoints.end("run", driver, RunState.FINISHED, "", NOW)
        assert (await store.runs.get("run")).reason == "by message"


class DriverPromises:
    async def test_a_word_for_the_driver_is_heard_until_the_next_takes_over(
        self, store: Store
    ) -> None:
        await new_run(store)
        with pytest.raises(Conflict):
            await store.checkpoints.ask("run", "restart")
        assert await store.checkpoints.orders("run") == DriverRequests(RunState.RUNNING)
        await store.checkpoints.take_over("run", 60.0, NOW)
        await store.checkpoints.ask("run", "restart")
        assert (await store.checkpoints.orders("run")).asked == "restart"
        driver = await store.checkpoints.take_over("run", 60.0, NOW)
        assert (await store.checkpoints.orders("run")).asked == ""
        await store.checkpoints.end("run", driver, RunState.PAUSED, "Ctrl-C", NOW)
        assert await store.checkpoints.orders("run") == DriverRequests(RunState.PAUSED, "Ctrl-C")
        for call in (store.checkpoints.orders("none"), store.checkpoints.ask("none", "restart")):
            with pytest.raises(UnknownRun):
                await call

    async def test_a_run_whose_driver_is_silent_fails(self, store: Store) -> None:
        for name, patience in (("dead", 60.0), ("alive", 60.0), ("patient", 0.0), ("away", 60.0)):
            await new_run(store, name)
            driver = await store.checkpoints.take_over(name, patience, NOW)
            if name == "alive":
                await store.checkpoints.checkpoint(name, driver, [], [], [], NOW + 50)
            if name == "away":
                await store.checkpoints.end(name, driver, RunState.PAUSED, "", NOW)
        assert await store.checkpoints.give_up_silent(NOW + 59) == []
        assert await store.checkpoints.give_up_silent(NOW + 61) == ["dead"]
        assert await store.checkpoints.give_up_silent(NOW + 62) == []
        run = await store.runs.get("dead")
        assert (run.state, run.reason[:37]) == (
            RunState.FAILED,
            "driver silent: no call from its proce",
        )
        assert await store.checkpoints.give_up_silent(NOW + 1000) == ["alive"]

    async def test_the_items_of_some_pages(self, store: Store) -> None:
        block = await leased_one(store, 3)
        await settle(store, settlement(block, done(ids(block))))
        driver = await store.checkpoints.take_over("run")
        first, second, third = ids(block)
        found = [ItemRow(n, i, msgspec.msgpack.encode([n, i])) for n in ids(block) for i in (0, 1)]
        for _ in range(2):  # sent twice, stored once
            await store.checkpoints.checkpoint("run", driver, [block.id], found, [], NOW)
        kept = await store.checkpoints.items_of("run", [first, third])
        assert [msgspec.msgpack.decode(item.data) for item in kept] == [
            [n, i] for n in (first, third) for i in (0, 1)
        ]
        assert await store.checkpoints.items_of("run", []) == []
        assert await store.checkpoints.count("run") == 6
        assert second not in {item.request for item in kept}


class AnswerPromises:
    async def test_an_agent_that_answers_nothing_loses_its_block(self, store: Store) -> None:
        """R5: it renews its lease and never reports: another agent gets the block."""
        await new_run(store, answer_seconds=60.0, time_limit=30.0, host_delay=10.0)
        await store.requests.accept("run", rows(4), NOW)
        (block,) = await lease(store, await pack(store), until=NOW + 30)
        by = NOW + 100
        for moment in (20, 40, 60, 80, 99):
            assert await store.blocks.renew([block.held], "agent", NOW + moment + 30) == []
            assert await store.blocks.reap(NOW + moment, [], 10, 10) == []
        (freed,) = await store.blocks.reap(by + 1, [], 10, 10)
        assert freed.ref is not None
        assert freed.reason == "agent agent holds it and does not answer"
        assert await store.blocks.renew([block.held], "agent", LATER) == [block.id]

    async def test_every_answer_gives_time_for_the_next(self, store: Store) -> None:
        await new_run(store, answer_seconds=60.0, time_limit=30.0)
        await store.requests.accept("run", rows(3), NOW)
        (block,) = await lease(store, await pack(store))
        part = settlement(block, done(ids(block)[:1]), final=False)
        assert await settle(store, part, now=NOW + 80) == ["stored"]
        await store.blocks.renew([block.held], "agent", NOW + 500)
        assert await store.blocks.reap(NOW + 169, [], 10, 10) == []
        (freed,) = await store.blocks.reap(NOW + 171, [], 10, 10)
        assert freed.block == block.id

    async def test_a_run_without_a_bound_waits_as_long_as_leases_are_renewed(
        self, store: Store
    ) -> None:
        await new_run(store, answer_seconds=0.0)
        await store.requests.accept("run", rows(1), NOW)
        (block,) = await lease(store, await pack(store))
        await store.blocks.renew([block.held], "agent", NOW + 1e6)
        assert await store.blocks.reap(NOW + 999_999, [], 10, 10) == []

    async def test_blocks_of_several_runs_have_bounds_of_their_own(self, store: Store) -> None:
        for name, seconds in (("short", 10.0), ("long", 1000.0), ("none", 0.0)):
            await new_run(store, name, answer_seconds=seconds, time_limit=1.0)
            await store.requests.accept(name, rows(1), NOW)
        refs = [ref for name in ("short", "long", "none") for ref in await pack(store, name)]
        held = [block.held for block in await lease(store, refs)]
        await store.blocks.renew(held, "agent", NOW + 1e6)
        freed = await store.blocks.reap(NOW + 12, [], 10, 10)
        assert [item.block for item in freed] == [refs[0].id]

    async def test_unanswered_requests_are_retried_as_often_as_their_run_says(
        self, store: Store
    ) -> None:
        """R5: the request is retried n times, then reported."""
        await new_run(store, answer_retries=2)
        await store.requests.accept("run", rows(1), NOW)
        (ref,) = await pack(store)
        for _ in range(2):
            await lease(store, [ref])
            (freed,) = await store.blocks.reap(LATER + 1, [], 10, 10)
            assert freed.ref is not None
        await lease(store, [ref])
        (freed,) = await store.blocks.reap(LATER + 1, [], 10, 10)
        assert freed.ref is None
        (told,) = await store.blocks.finished("run", 10)
        assert [(r.state, r.failure) for r in told.requests] == [("dead", "lost")]

    async def test_a_late_answer_is_stored_once(self, store: Store) -> None:
        """R5: the agent that was given up reports after its successor."""
        (block,) = await leased(store, 2)
        await store.blocks.reap(LATER + 1, [], 10, 10)
        (again,) = await lease(store, [block.id], agent="other", now=LATER + 1, until=LATER + 60)
        late = settlement(block, done(ids(block)))
        mine = settlement(again, done(ids(again)), agent="other")
        assert await settle(store, late, mine, mine, late) == [
            "stale", "stored", "duplicate", "stale",
        ]  # fmt: skip
        assert await ledger(store) == Ledger(accepted=2, done=2)
        assert (await store.figures.read("run", LATER + 2)).answers == 2


class FigurePromises:
    async def test_figures_are_counted_with_every_report(self, store: Store) -> None:
        """R3: rate, agents used, bytes, per-status counts."""
        first, second = await leased(store, 8, size=4)
        good = done(ids(first))
        for outcome in good:
            outcome.received, outcome.sent = 1000, 10
        good[0].status = 301
        again_at = {ids(second)[0]: LATER}
        bad = failed(ids(second))
        await settle(store, settlement(first, good), settlement(second, bad, again_at))
        assert await settle(store, settlement(first, good)) == ["duplicate"]
        figures = await store.figures.read("run", NOW + 1)
        assert (figures.answers, figures.received, figures.sent) == (8, 4000, 40)
        assert figures.statuses == {"200": 3, "301": 1}
        assert figures.failures == {"timeout": 4}
        assert figures.agents == {"agent": 8}

    async def test_the_rate_is_that_of_the_last_minute(self, store: Store) -> None:
        await new_run(store)
        blocks = await leased(store, 60, run="busy", size=20)
        for number, block in enumerate(blocks):
            await settle(store, settlement(block, done(ids(block))), now=NOW + 100 + 10 * number)
        assert (await store.figures.read("busy", NOW + 121)).rate == pytest.approx(1.0, rel=0.3)
        assert (await store.figures.read("busy", NOW + 500)).rate == 0.0
        assert (await store.figures.read("run", NOW + 121)).rate == 0.0
        assert await store.figures.forget_rates(NOW + 121) == 0
        assert await store.figures.forget_rates(NOW + 500) == 3
        assert (await store.figures.read("busy", NOW + 500)).answers == 60
        with pytest.raises(UnknownRun):
            await store.figures.read("none", NOW)
