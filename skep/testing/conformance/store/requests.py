"""Conformance tests of a store for runs and requests. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from skep.errors import Conflict, InvalidInput, NotFound, UnknownRun
from skep.model.hosts.named_places import PLACES_LIMIT
from skep.model.ledger import Ledger
from skep.model.request import Accepted
from skep.model.run import Run, RunSettings
from skep.model.states import RUN_CHANGES, BlockState, RequestState, RunState
from skep.store.ports import Store
from skep.store.ports.blocks import RetryFacts
from skep.store.ports.requests import Backlog, PackPlan
from skep.testing.conformance.store.ground import LATER, NOW, ledger, new_run, row, rows
from skep.testing.conformance.store.leasing import lease, leased_one, pack, packed
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement, works


class RunPromises:
    async def test_a_run_is_created_once_and_kept_as_it_was(self, store: Store) -> None:
        run = await new_run(store, "run", retries=3, headers={"a": "ä"})
        other = msgspec.structs.replace(run, job="another", settings=RunSettings())
        assert await store.runs.create(other) is False
        assert await store.runs.get("run") == run
        assert await store.runs.settings_of(["run", "none"]) == {"run": run.settings}

    async def test_run_ids_that_differ_by_case_are_two_runs(self, store: Store) -> None:
        await new_run(store, "Run")
        await new_run(store, "run", retries=1)
        await store.requests.accept("Run", rows(2), NOW)
        await store.requests.accept("run", rows(3), NOW)
        assert (await ledger(store, "Run")).accepted == 2
        assert (await ledger(store, "run")).accepted == 3
        assert (await store.runs.get("Run")).settings.retries == 0
        assert len(await store.runs.settings_of(["Run", "run"])) == 2

    async def test_named_places_travel_with_the_settings(self, store: Store) -> None:
        """H1: added once, bounded, in addition to those of the settings, which do not change."""
        run = await new_run(store, "run", named=("localhost:1",))
        await store.runs.name_places("run", {"127.0.0.1:80", "localhost:1"})
        await store.runs.name_places("run", ["127.0.0.1:80", "nas:80"])
        kept = await store.runs.get("run")
        assert (kept.named, kept.settings) == (
            ("127.0.0.1:80", "localhost:1", "nas:80"),
            run.settings,
        )
        found = (await store.runs.settings_of(["run"]))["run"]
        assert found.named == ("localhost:1", "127.0.0.1:80", "nas:80")
        await store.runs.name_places("run", [f"127.0.0.1:{port}" for port in range(1000)])
        assert len((await store.runs.get("run")).named) == PLACES_LIMIT

    async def test_an_unknown_run_is_named(self, store: Store) -> None:
        calls = [
            store.runs.get("none"),
            store.runs.move("none", RunState.PAUSED),
            store.runs.name_places("none", ["localhost:1"]),
            store.requests.accept("none", rows(1), NOW),
            store.requests.cancel("none", NOW),
            store.requests.revive("none"),
            store.requests.pack([PackPlan("none", 5, 1, 1)], NOW),
            store.blocks.finished("none", 1),
            store.blocks.collect("none", [1]),
            store.blocks.strange("none", [1]),
            store.ledgers.read("none"),
            store.ledgers.audit("none"),
        ]
        for call in calls:
            with pytest.raises(UnknownRun, match="none"):
                await call

    async def test_recent_runs_come_newest_first(self, store: Store) -> None:
        for number in range(5):
            run = Run(f"run-{number}", "job", RunState.RUNNING, RunSettings(), NOW + number)
            await store.runs.create(run)
        assert [run.id for run in await store.runs.recent(2)] == ["run-4", "run-3"]
        older = await store.runs.recent(2, before=NOW + 2)
        assert [run.id for run in older] == ["run-1", "run-0"]

    async def test_a_run_moves_by_the_table_only(self, store: Store) -> None:
        for number, (state, allowed) in enumerate(RUN_CHANGES.items()):
            for target in RunState:
                run = Run(f"r{number}-{target}", "job", state, RunSettings(), NOW)
                await store.runs.create(run)
                if target == state or target in allowed:
                    assert (await store.runs.move(run.id, target)).state == target
                else:
                    with pytest.raises(Conflict, match=str(state)):
                        await store.runs.move(run.id, target)
                    target = state  # noqa: PLW2901 - where it must still be
                assert (await store.runs.get(run.id)).state == target


class AcceptPromises:
    async def test_a_fingerprint_is_accepted_once(self, store: Store) -> None:
        await new_run(store)
        assert await store.requests.accept("run", rows(10), NOW) == Accepted(10, 0)
        assert await store.requests.accept("run", rows(15), NOW) == Accepted(5, 10)
        twice = [row("twice"), row("twice")]
        assert await store.requests.accept("run", twice, NOW) == Accepted(1, 1)
        assert await store.requests.accept("run", [], NOW) == Accepted(0, 0)
        assert await ledger(store) == Ledger(accepted=16, waiting=16)

    async def test_the_same_batch_by_many_at_once_is_there_once(
        self, store: Store, other_store: Store
    ) -> None:
        await new_run(store)
        calls = [
            center.requests.accept("run", rows(200), NOW)
            for center in (store, other_store)
            for _ in range(8)
        ]
        answers = await asyncio.gather(*calls)
        assert sum(answer.new for answer in answers) == 200
        assert all(answer.new + answer.known == 200 for answer in answers)
        assert (await ledger(store)).accepted == 200

    async def test_a_fingerprint_belongs_to_its_run(self, store: Store) -> None:
        await new_run(store, "one")
        await new_run(store, "two")
        assert (await store.requests.accept("one", rows(5), NOW)).new == 5
        assert (await store.requests.accept("two", rows(5), NOW)).new == 5
        assert (await store.ledgers.read()).accepted == 10

    @pytest.mark.parametrize("end", [RunState.FINISHED, RunState.CANCELLED])
    async def test_a_run_that_has_ended_takes_nothing(self, store: Store, end: RunState) -> None:
        await new_run(store)
        await store.runs.move("run", end)
        with pytest.raises(Conflict, match=str(end)):
            await store.requests.accept("run", rows(1), NOW)
        assert (await ledger(store)).accepted == 0

    async def test_a_paused_run_takes_and_keeps(self, store: Store) -> None:
        await new_run(store)
        await store.runs.move("run", RunState.PAUSED)
        assert (await store.requests.accept("run", rows(3), NOW)).new == 3
        assert await store.requests.backlog() == []
        assert await pack(store) == []
        await store.runs.move("run", RunState.RUNNING)
        assert sum(ref.size for ref in await pack(store)) == 3

    async def test_large_and_foreign_contents_come_back_as_they_were(self, store: Store) -> None:
        await new_run(store)
        long_uri = "http://host/" + "ж💧%00%s?:x=" * 700
        uri = long_uri[:8000]
        body = bytes(range(256)) * 4096
        meta = {"name": "Ænima 💧", "none": None, "deep": [{"a": 1.5}]}
        arguments = msgspec.msgpack.encode(("POST", {"X-Ü": "ü"}, body, meta))
        await store.requests.accept("run", [row("big", arguments=arguments, uri=uri)], NOW)
        (block,) = await lease(store, await pack(store))
        (work,) = works(block)
        assert (work.uri, work.method, work.headers) == (uri, "POST", {"X-Ü": "ü"})
        assert work.body == body
        assert work.meta == meta
        await settle(store, settlement(block, done(ids(block))))
        (finished,) = await store.blocks.finished("run", 10)
        assert (finished.requests[0].uri, finished.requests[0].meta) == (uri, meta)

    async def test_large_requests_make_small_blocks(self, store: Store) -> None:
        """No database and no agent gets a block of a hundred megabytes."""
        await new_run(store)
        large = msgspec.msgpack.encode(("POST", {}, b"x" * 2**20, {}))
        await store.requests.accept("run", rows(6, arguments=large), NOW)
        blocks = await lease(store, await pack(store, size=100))
        assert sum(block.size for block in blocks) == 6
        assert max(len(block.body) for block in blocks) < 3 * 2**20

    async def test_what_a_column_cannot_hold_is_refused_whole(self, store: Store) -> None:
        await new_run(store)
        wide = msgspec.structs.replace(row("wide"), host="h" * 256)
        with pytest.raises(InvalidInput):
            await store.requests.accept("run", [row("fine"), wide], NOW)
        assert (await ledger(store)).accepted == 0

    async def test_a_caller_that_fails_harms_no_other(self, store: Store) -> None:
        await new_run(store)
        wide = msgspec.structs.replace(row("wide"), host="h" * 256)
        calls = [
            store.requests.accept("run", [wide] if n % 3 == 0 else [row(n)], NOW) for n in range(30)
        ]
        calls += [store.requests.accept("none", rows(1), NOW) for _ in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert {type(error) for error in refused} == {InvalidInput, UnknownRun}
        assert len(refused) == 15
        assert (await ledger(store)).accepted == 20


class PackPromises:
    async def test_oldest_first_in_blocks_of_the_size_up_to_the_limit(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", rows(30), NOW)
        refs = await pack(store, limit=25, size=10)
        assert [ref.size for ref in refs] == [10, 10, 5]
        blocks = await lease(store, refs)
        uris = [work.uri for block in blocks for work in works(block)]
        assert uris == [f"http://host/{number}" for number in range(25)]
        assert await ledger(store) == Ledger(accepted=30, waiting=5, leased=25)
        assert await pack(store, priority=4) == []

    async def test_plans_take_their_own_run_and_priority(self, store: Store) -> None:
        await new_run(store, "one")
        await new_run(store, "two")
        await store.requests.accept("one", rows(4, priority=-1) + rows(4, 3, start=4), NOW)
        await store.requests.accept("two", rows(4, priority=3), NOW)
        plans = [PackPlan("two", 3, 2, 10), PackPlan("one", -1, 10, 3)]
        refs = (await store.requests.pack(plans, NOW)).blocks
        assert [(r.run, r.priority, r.size) for r in refs] == [
            ("two", 3, 2),
            ("one", -1, 3),
            ("one", -1, 1),
        ]

    async def test_the_backlog_names_running_runs_by_priority(self, store: Store) -> None:
        await new_run(store, "one", block_size=7)
        await new_run(store, "two")
        await new_run(store, "rests")
        await new_run(store, "empty")
        await store.requests.accept("one", rows(3, priority=5) + rows(2, -1, start=3), NOW)
        await store.requests.accept("two", rows(4, priority=0), NOW)
        await store.requests.accept("rests", rows(4), NOW)
        await store.runs.move("rests", RunState.PAUSED)
        backlog = await store.requests.backlog()
        assert [(b.run, b.priority, b.block_size) for b in backlog] == [
            ("one", -1, 7),
            ("two", 0, 100),
            ("one", 5, 7),
        ]
        assert Backlog("two", 0, 4, 100, "job") in backlog
        await pack(store, "two", priority=0)
        assert "two" not in {entry.run for entry in await store.requests.backlog()}


class SweepPromises:
    async def test_what_is_delayed_wakes_when_it_is_due(self, store: Store) -> None:
        block = await leased_one(store, 4)
        a, b, c, d = ids(block)
        again = {a: NOW + 10, b: NOW + 20, c: NOW + 30}
        await settle(store, settlement(block, failed([a, b, c]) + done([d]), again))
        assert await ledger(store) == Ledger(accepted=4, delayed=3, done=1)
        assert await store.requests.wake(NOW + 9, 10) == 0
        assert await store.requests.wake(NOW + 25, 1) == 1
        assert await store.requests.wake(NOW + 25, 10) == 1
        assert await ledger(store) == Ledger(accepted=4, waiting=2, delayed=1, done=1)
        view = await store.requests.get(c)
        assert (view.state, view.failures, view.not_before) == (RequestState.DELAYED, 1, NOW + 30)
        assert view.block is None

    async def test_what_is_late_expires_unless_it_is_in_a_block(self, store: Store) -> None:
        await new_run(store)
        mortal = rows(3, expires_at=NOW + 5) + rows(1, start=3, expires_at=NOW + 50) + [row("for")]
        await store.requests.accept("run", mortal, NOW)
        (ref,) = await pack(store, limit=1)
        assert await store.requests.expire(NOW + 4, 10) == 0
        assert await store.requests.expire(NOW + 6, 1) == 1
        assert await store.requests.expire(NOW + 6, 10) == 1
        (block,) = await lease(store, [ref])
        await settle(store, settlement(block, failed(ids(block)), {ids(block)[0]: LATER}))
        assert await store.requests.expire(NOW + 6, 10) == 1, "a delayed one expires too"
        assert await ledger(store) == Ledger(accepted=5, waiting=2, expired=3)

    async def test_what_is_late_in_a_block_is_never_leased(self, store: Store) -> None:
        """Faults 7, 8: a block waited for an agent longer than its requests are valid."""
        await new_run(store)
        mixed = (
            rows(2, expires_at=NOW + 5) + rows(1, start=2) + rows(3, start=3, expires_at=NOW + 5)
        )
        await store.requests.accept("run", mixed, NOW)
        some, gone = await pack(store, size=3)
        leased = await store.blocks.lease([some.id, gone.id], "a", NOW + 6, LATER)
        assert [(block.id, len(block.skip)) for block in leased] == [(some.id, 2)]
        assert await ledger(store) == Ledger(accepted=6, leased=1, expired=5)
        assert (await store.blocks.get(gone.id)).state is BlockState.FAILED
        (read,) = await store.blocks.finished("run", 10)
        assert [one.state for one in read.requests] == ["expired"] * 3

    async def test_cancel_ends_all_but_what_agents_hold(self, store: Store) -> None:
        held = await leased_one(store, 4)
        a, *rest = ids(held)
        await settle(store, settlement(held, failed([a]), {a: LATER}, final=False))
        await store.requests.accept("run", rows(20, start=4), NOW)
        (ready,) = await pack(store, limit=10)
        await store.runs.move("run", RunState.CANCELLED)
        assert await store.requests.cancel("run", NOW) == 21
        assert await store.requests.cancel("run", NOW) == 0
        assert await ledger(store) == Ledger(accepted=24, cancelled=21, leased=3)
        assert (await store.blocks.get(ready.id)).state.name == "FAILED"
        assert await lease(store, [ready]) == []
        outcomes = done(rest[:1]) + failed(rest[1:2])
        assert await settle(store, settlement(held, outcomes, {rest[1]: LATER})) == ["stored"]
        assert await ledger(store) == Ledger(accepted=24, cancelled=23, done=1)
        assert await store.requests.wake(LATER, 100) == 0

    async def test_what_comes_back_to_a_cancelled_run_ends(self, store: Store) -> None:
        blocks = await lease(store, await packed(store, 20))
        await store.runs.move("run", RunState.CANCELLED)
        await store.requests.cancel("run", NOW)
        first, second = blocks
        assert await store.blocks.give_back([first.held], "agent", NOW, "stop") == []
        (freed,) = await store.blocks.reap(LATER + 1, [], 10, 10)
        assert (freed.block, freed.ref) == (second.id, None)
        assert await ledger(store) == Ledger(accepted=20, cancelled=20)

    async def test_a_run_of_many_blocks_is_cancelled(self, store: Store) -> None:
        """More blocks than one statement can name."""
        await new_run(store)
        await store.requests.accept("run", rows(1500), NOW)
        await pack(store, limit=1200, size=4)
        assert await store.requests.cancel("run", NOW) == 1500
        assert await ledger(store) == Ledger(accepted=1500, cancelled=1500)

    async def test_the_dead_are_revived_with_a_clean_slate(self, store: Store) -> None:
        block = await leased_one(store, 3)
        await settle(store, settlement(block, failed(ids(block)[:2]) + done(ids(block)[2:])))
        assert await ledger(store) == Ledger(accepted=3, dead=2, done=1)
        assert await store.requests.revive("run") == 2
        assert await store.requests.revive("run") == 0
        view = await store.requests.get(ids(block)[0])
        assert (view.state, view.failures) == (RequestState.WAITING, 0)
        (again,) = await lease(store, await pack(store))
        assert ids(again) == ids(block)[:2]
        assert await settle(store, settlement(again, done(ids(again)))) == ["stored"]
        assert len(await store.requests.attempts(ids(block)[0])) == 2

    async def test_the_dead_of_a_cancelled_run_stay_dead(self, store: Store) -> None:
        block = await leased_one(store, 1)
        await settle(store, settlement(block, failed(ids(block))))
        await store.runs.move("run", RunState.CANCELLED)
        with pytest.raises(Conflict, match="cancelled"):
            await store.requests.revive("run")
        assert (await ledger(store)).dead == 1

    async def test_a_request_as_people_see_it(self, store: Store) -> None:
        (ref,) = await packed(store, 1)
        with pytest.raises(NotFound, match="999999"):
            await store.requests.get(999_999)
        (block,) = await lease(store, [ref])
        (number,) = ids(block)
        view = await store.requests.get(number)
        assert (view.run, view.uri, view.priority) == ("run", "http://host/0", 5)
        assert (view.state, view.block) == (RequestState.LEASED, ref.id)
        await store.blocks.give_back([block.held], "agent", NOW, "stop")
        assert (await store.requests.get(number)).state is RequestState.QUEUED

    async def test_retry_facts(self, store: Store) -> None:
        await new_run(store, "run", retries=4)
        await store.requests.accept("run", rows(2), NOW)
        (block,) = await lease(store, await pack(store))
        a, b = ids(block)
        await settle(store, settlement(block, failed([a]), {a: LATER}, final=False))
        found = await store.requests.retry_facts([a, b, 10**9])
        assert found == {a: RetryFacts(1, 4), b: RetryFacts(0, 4)}
        assert await store.requests.retry_facts([]) == {}

    async def test_retry_facts_of_a_run_with_a_back_off_of_its_own(self, store: Store) -> None:
        await new_run(store, "run", retries=1, backoff_first=0.5, backoff_cap=7.0)
        await store.requests.accept("run", rows(1), NOW)
        (block,) = await lease(store, await pack(store))
        (a,) = ids(block)
        assert (await store.requests.retry_facts([a]))[a] == RetryFacts(0, 1, 0.5, 7.0)
