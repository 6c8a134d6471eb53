"""Hosts with a rate limit: one open block at a time, parking, wake-ups, cooling, counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from skep.errors import InvalidInput, NotFound
from skep.model.block import BlockReport, Held, Leased
from skep.model.hosts.host import SiteNote, SiteRule
from skep.model.hosts.politeness import Politeness
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.states import RequestState, RunState
from skep.settings import SiteSettings
from skep.store.ports import Store
from skep.store.ports.blocks import RetryRule, Settlement
from skep.store.ports.requests import Packing, PackPlan, RequestRow
from skep.testing.conformance.store.ground import LATER, NOW, history, ledger, new_run, row
from skep.testing.conformance.store.reports import done, failed, ids, works

#: A window of ten requests: one per second, ten seconds in one block.
POLITENESS = Politeness(SiteSettings(rate=1.05, window=10.0, cooling_first=30.0, cooling_cap=100.0))
SOON = NOW + 10.0
SLOW, OTHER, OWN = "slow.example", "other.example", "127.0.0.1"


def on(host: str, count: int, start: int = 0, **fields: Any) -> list[RequestRow]:
    """Requests to a host."""
    made = [row(f"{host}-{n}", **fields) for n in range(start, start + count)]
    return [RequestRow(r.fingerprint, r.uri, host, *_rest(r)) for r in made]


def _rest(r: RequestRow) -> tuple[Any, ...]:
    return r.priority, r.arguments, r.expires_at


async def politely(
    store: Store, run: str = "run", now: float = NOW, limit: int = 1000, size: int = 100
) -> Packing:
    return await store.requests.pack([PackPlan(run, 5, limit, size)], now, POLITENESS)


async def take(
    store: Store, packing: Packing, agent: str = "agent", now: float = NOW
) -> list[Leased]:
    wanted = [ref.id for ref in packing.blocks]
    return await store.blocks.lease(wanted, agent, now, now + 30, POLITENESS)


async def tell(
    store: Store,
    block: Leased,
    outcomes: Sequence[Outcome],
    *notes: SiteNote,
    now: float = NOW,
    final: bool = False,
    again_at: dict[int, float] | None = None,
) -> str:
    report = BlockReport(block.id, block.token, list(outcomes), final, b"", list(notes))
    item = Settlement(report, "agent", RetryRule(again_at or {}))
    (verdict,) = await store.blocks.settle([item], now, POLITENESS)
    return verdict.verdict


async def holder(store: Store, host: str) -> int | None:
    return (await store.hosts.get(host)).block


async def one_block(store: Store, count: int = 5, run: str = "run") -> Leased:
    """`count` requests of the slow host, leased to `agent`."""
    await new_run(store, run)
    await store.requests.accept(run, on(SLOW, count), NOW)
    (block,) = await take(store, await politely(store, run))
    return block


class PackHostsPromises:
    async def test_a_window_goes_into_one_block_and_the_rest_is_parked(self, store: Store) -> None:
        """politeness: a slow host does not delay the other hosts of its run."""
        await new_run(store)
        await store.requests.accept("run", on(SLOW, 30) + on(OWN, 5) + on(OTHER, 3), NOW)
        packing = await politely(store)
        sizes = sorted(ref.size for ref in packing.blocks)
        assert (sizes, packing.parked) == ([5, 13], 20)
        assert await ledger(store) == Ledger(accepted=38, queued=18, delayed=20)
        blocks = {len(ids(block)): block for block in await take(store, packing)}
        assert {work.uri.split("/")[3][:3] for work in works(blocks[5])} == {"127"}
        held = await store.hosts.held([blocks[5].id, blocks[13].id])
        assert [(h.block, h.site.host) for h in held] == [
            (blocks[13].id, OTHER),
            (blocks[13].id, SLOW),
        ]

    async def test_without_politeness_nothing_is_held(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", on(SLOW, 30), NOW)
        packing = await store.requests.pack([PackPlan("run", 5, 100, 100)], NOW)
        assert ([ref.size for ref in packing.blocks], packing.parked) == ([30], 0)
        assert await store.hosts.held([packing.blocks[0].id]) == []

    async def test_a_host_is_in_one_open_block_over_all_runs(self, store: Store) -> None:
        """politeness: the second run waits until the first block has ended."""
        block = await one_block(store)
        await new_run(store, "two")
        await store.requests.accept("two", on(SLOW, 4, 100), NOW)
        assert await politely(store, "two") == Packing([], 4)
        assert await store.hosts.wake(SOON, POLITENESS, 100) == 0
        assert await tell(store, block, done(ids(block)), final=True, now=SOON) == "stored"
        assert await store.hosts.wake(SOON, POLITENESS, 100) == 4
        assert [ref.size for ref in (await politely(store, "two", SOON)).blocks] == [4]

    async def test_parked_requests_come_by_themselves_in_the_end(self, store: Store) -> None:
        """A request is never parked for longer than an hour."""
        await one_block(store, 30)
        assert await store.requests.wake(NOW + 1, 100) == 0
        assert await store.requests.wake(NOW + 3600, 100) == 20
        assert await politely(store, now=NOW + 3600) == Packing([], 20)
        assert await store.requests.wake(NOW + 3600, 100) == 0, "parked again, not woken"

    async def test_a_request_that_failed_is_woken_by_its_own_time_alone(self, store: Store) -> None:
        block = await one_block(store, 2)
        first, second = ids(block)
        outcomes = failed([first])
        await tell(store, block, outcomes, again_at={first: NOW + 500})
        await tell(store, block, done([second]), final=True)
        assert await store.hosts.wake(NOW + 20, POLITENESS, 100) == 0
        assert (await store.requests.get(first)).state is RequestState.DELAYED

    async def test_two_centers_never_claim_the_same_host(
        self, store: Store, other_store: Store
    ) -> None:
        """politeness: the faster center gets the host, the other one parks."""
        for number in range(8):
            run, host = f"run{number}", f"host{number}.example"
            for name in (run, f"{run}b"):
                await new_run(store, name)
                await store.requests.accept(name, on(host, 3), NOW)
            both = await asyncio.gather(
                politely(store, run), politely(other_store, f"{run}b"), return_exceptions=False
            )
            assert sorted(len(one.blocks) for one in both) == [0, 1]
            assert sorted(one.parked for one in both) == [0, 3]

    async def test_large_requests_of_a_host_do_not_outgrow_a_block(self, store: Store) -> None:
        await new_run(store)
        import msgspec

        large = msgspec.msgpack.encode(("POST", {}, b"x" * 900_000, {}))
        await store.requests.accept("run", on(SLOW, 5, arguments=large), NOW)
        packing = await politely(store)
        assert ([ref.size for ref in packing.blocks], packing.parked) == ([2], 3)

    async def test_a_paused_run_gives_its_hosts_back(self, store: Store) -> None:
        """politeness: a run that is paused for weeks does not block a host."""
        await new_run(store)
        await store.requests.accept("run", on(SLOW, 5), NOW)
        packing = await politely(store)
        await store.runs.move("run", RunState.PAUSED)
        assert await store.hosts.unpack(NOW, 100) == 1
        assert await ledger(store) == Ledger(accepted=5, delayed=5)
        assert await take(store, packing) == []
        assert await holder(store, SLOW) is None
        await store.runs.move("run", RunState.RUNNING)
        assert await store.requests.wake(NOW, 100) == 5
        assert [ref.size for ref in (await politely(store)).blocks] == [5]
        assert await store.hosts.unpack(NOW, 100) == 0

    async def test_parked_requests_of_resting_runs_do_not_stand_in_the_way(
        self, store: Store
    ) -> None:
        block = await one_block(store)
        for name, start in (("rests", 100), ("goes", 200)):
            await new_run(store, name)
            await store.requests.accept(name, on(SLOW, 15, start), NOW)
            await politely(store, name)
        await store.runs.move("rests", RunState.PAUSED)
        await tell(store, block, done(ids(block)), final=True, now=SOON)
        assert await store.hosts.wake(SOON, POLITENESS, 1000) >= 10
        assert [ref.size for ref in (await politely(store, "goes", SOON)).blocks] == [10]


class LetGoPromises:
    async def test_a_host_that_is_left_is_free_before_its_block_ends(self, store: Store) -> None:
        """politeness: the next start keeps the distance that the agent reported."""
        await new_run(store)
        await store.requests.accept("run", on(SLOW, 2) + on(OTHER, 2), NOW)
        (block,) = await take(store, await politely(store))
        mine = [work.id for work in works(block) if SLOW in work.uri]
        note = SiteNote(SLOW, 2, left=True, wait=0.7)
        assert await tell(store, block, done(mine), note) == "stored"
        assert await holder(store, SLOW) is None
        assert await holder(store, OTHER) == block.id
        assert (await store.hosts.get(SLOW)).site.not_before == pytest.approx(NOW + 0.7)

    async def test_every_end_of_a_block_frees_its_host(self, store: Store) -> None:
        """politeness: cancelled, expired, lost too often, returned by a cancelled run."""
        await new_run(store)
        await store.requests.accept("run", on(SLOW, 3, expires_at=NOW + 5), NOW)
        packing = await politely(store)
        assert await take(store, packing, now=NOW + 6) == []
        assert await holder(store, SLOW) is None, "expired"
        block = await one_block(store, 3, "lost")
        assert await holder(store, SLOW) == block.id
        await store.blocks.reap(NOW + 60, [], 1, 10)
        assert await holder(store, SLOW) is None, "lost"
        await self._cancelled(store, "ready", leased=False)
        await self._cancelled(store, "using", leased=True)

    async def _cancelled(self, store: Store, run: str, *, leased: bool) -> None:
        await new_run(store, run)
        await store.requests.accept(run, on(SLOW, 3), NOW)
        packing = await politely(store, run)
        held = await take(store, packing) if leased else []
        await store.runs.move(run, RunState.CANCELLED)
        await store.requests.cancel(run, NOW)
        await store.blocks.give_back([b.held for b in held], "agent", NOW, "over")
        assert await holder(store, SLOW) is None, run

    async def test_a_block_taken_back_keeps_its_hosts(self, store: Store) -> None:
        block = await one_block(store)
        await store.blocks.reap(NOW + 60, [], 10, 10)
        assert await holder(store, SLOW) == block.id
        (again,) = await store.blocks.lease([block.id], "b", NOW + 60, NOW + 90, POLITENESS)
        assert again.token == 2
        await store.blocks.give_back([Held(block.id, 2)], "b", NOW + 61, "draining")
        assert await holder(store, SLOW) == block.id

    async def test_single_requests_take_turns_with_their_host(self, store: Store) -> None:
        """politeness: a block split into single requests does not bypass the rate limit."""
        block = await one_block(store, 3)
        now = NOW
        for _ in range(3):
            now += 60
            freed = await store.blocks.reap(now, [], 10, 10)
            again = [item.ref.id for item in freed if item.ref]
            leased = await store.blocks.lease(again, "agent", now, now + 30, POLITENESS)
        assert len(again) == 3, "cut"
        assert [one.id for one in leased] == again[:1], "one at a time"
        assert await holder(store, SLOW) == again[0] != block.id
        assert await tell(store, leased[0], done(ids(leased[0])), final=True, now=now) == "stored"
        assert await store.hosts.wake(now, POLITENESS, 100) == 0
        assert await holder(store, SLOW) == again[1], "the next one is first in the queue"
        (second,) = await store.blocks.lease(again, "agent", now, now + 30, POLITENESS)
        assert second.id == again[1]
        assert {ref.id for ref in await store.blocks.claimable(10)} == {again[2]}


class NotePromises:
    async def test_counts_are_exact_whatever_is_sent_again(self, store: Store) -> None:
        """politeness: duplicate and stale reports count nothing."""
        block = await one_block(store, 4)
        first, second, *rest = ids(block)
        note = SiteNote(SLOW, 1, 0, 0, 0, 500, 70)
        assert await tell(store, block, done([first]), note) == "stored"
        assert await tell(store, block, done([first]), note) == "duplicate"
        # One known and one new outcome: only the new one counts.
        both = SiteNote(SLOW, 2, 1, 1, 0, 9000, 900)
        refused = Outcome(second, "status", 429, elapsed_us=40, received=5)
        assert await tell(store, block, [*done([first]), refused], both) == "stored"
        await tell(store, block, done(rest), SiteNote(SLOW, 2), final=True)
        await tell(store, block, done(rest), SiteNote(SLOW, 2), final=True)
        seen = await store.hosts.get(SLOW)
        assert (seen.requests, seen.failed, seen.refused) == (4, 1, 1)
        assert (seen.elapsed_us, seen.received, seen.last_at) == (540, 75, NOW)

    async def test_a_host_without_a_pace_is_counted_and_nothing_else(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", on(OWN, 2), NOW)
        (block,) = await take(store, await politely(store))
        trouble = SiteNote(OWN, 2, 2, delay=9.0, trouble="503", cool=50.0)
        await tell(store, block, failed(ids(block)), trouble, final=True)
        seen = await store.hosts.get(OWN)
        assert (seen.requests, seen.failed) == (2, 2)
        assert (seen.site.delay, seen.site.cooling_until, seen.site.strikes) == (0.0, 0.0, 0)

    async def test_deferred_requests_come_again_uncounted(self, store: Store) -> None:
        """politeness: a host that refuses is paused; requests that were not sent do not fail."""
        block = await one_block(store, 5)
        first, *rest = ids(block)
        refused = [Outcome(first, "status", 429)]
        note = SiteNote(SLOW, 1, 1, 1, left=True, deferred=rest, trouble="429", cool=40.0)
        assert await tell(store, block, refused, note) == "stored"
        assert await tell(store, block, refused, note) == "duplicate"
        assert await ledger(store) == Ledger(accepted=5, dead=1, delayed=4)
        assert (await store.blocks.get(block.id)).open == 0
        assert "some requests wait for their hosts" in (await history(store, block.id))[-1][1]
        view = await store.requests.get(rest[0])
        assert (view.failures, view.block, view.not_before) == (0, None, NOW + 40)
        assert await store.requests.attempts(rest[0]) == []
        seen = await store.hosts.get(SLOW)
        assert (seen.deferred, seen.site.strikes, seen.site.reason) == (4, 1, "429")
        assert seen.site.cooling_until == NOW + 40
        # No request before, one probe afterwards, and a successful response ends it.
        assert await store.hosts.wake(NOW + 39, POLITENESS, 100) == 0
        assert await store.hosts.wake(NOW + 40, POLITENESS, 100) == 1
        (probe,) = await take(store, await politely(store, now=NOW + 40), now=NOW + 40)
        assert probe.size == 1
        await tell(store, probe, done(ids(probe)), SiteNote(SLOW, 1), final=True, now=NOW + 41)
        assert (await store.hosts.get(SLOW)).site.strikes == 0
        assert await store.hosts.wake(NOW + 41, POLITENESS, 100) == 3

    async def test_rests_grow_until_an_answer_is_good(self, store: Store) -> None:
        await new_run(store)
        await store.requests.accept("run", on(SLOW, 4), NOW)
        now, rests = NOW, []
        for _ in range(3):
            await store.requests.wake(now, 100)
            await store.hosts.wake(now, POLITENESS, 100)
            (block,) = await take(store, await politely(store, now=now), now=now)
            note = SiteNote(SLOW, deferred=ids(block), trouble="failing", left=True)
            assert await tell(store, block, [], note, now=now) == "stored"
            until = (await store.hosts.get(SLOW)).site.cooling_until
            rests.append(until - now)
            now = until
        assert rests == [30, 60, 100], "doubled, up to the cap"

    async def test_new_requests_wait_while_a_host_cools(self, store: Store) -> None:
        block = await one_block(store)
        note = SiteNote(SLOW, deferred=ids(block), trouble="503", cool=20.0)
        await tell(store, block, [], note, final=True)
        await store.requests.accept("run", on(SLOW, 3, 50), NOW)
        assert await politely(store) == Packing([], 3)
        assert await store.requests.wake(NOW + 19, 100) == 0
        assert await store.requests.wake(NOW + 20, 100) == 6, "each in turn"

    async def test_only_its_own_requests_can_be_put_off(self, store: Store) -> None:
        block = await one_block(store, 2)
        with pytest.raises(InvalidInput):
            await tell(store, block, [], SiteNote(SLOW, deferred=[10**9], trouble="429"))
        assert (await store.hosts.get(SLOW)).site.strikes == 0

    async def test_in_a_cancelled_run_deferred_requests_end(self, store: Store) -> None:
        block = await one_block(store, 3)
        await store.runs.move("run", RunState.CANCELLED)
        await store.requests.cancel("run", NOW)
        note = SiteNote(SLOW, deferred=ids(block), trouble="429")
        assert await tell(store, block, [], note) == "stored"
        assert await ledger(store) == Ledger(accepted=3, cancelled=3)
        assert await holder(store, SLOW) is None


class RulePromises:
    async def test_rules_are_kept_shown_and_cleared(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.hosts.get(SLOW)
        with pytest.raises(NotFound):
            await store.hosts.clear(SLOW, NOW)
        rule = SiteRule(rate=0.5, concurrency=2, robots=False)
        await store.hosts.set_rule(SLOW, rule, NOW)
        await store.hosts.set_rule(OTHER, SiteRule(robots=True), NOW)
        assert (await store.hosts.get(SLOW)).site.rule == rule
        assert [one.site.host for one in await store.hosts.all(10)] == [OTHER, SLOW]
        assert [one.site.host for one in await store.hosts.all(10, OTHER)] == [SLOW]
        await store.hosts.clear(SLOW, NOW)
        assert (await store.hosts.get(SLOW)).site.rule == SiteRule()

    async def test_a_rule_gives_an_address_of_ones_own_a_pace(self, store: Store) -> None:
        await store.hosts.set_rule(OWN, SiteRule(rate=0.525), NOW)
        await new_run(store)
        await store.requests.accept("run", on(OWN, 20), NOW)
        packing = await politely(store)
        assert ([ref.size for ref in packing.blocks], packing.parked) == ([5], 15)
        (block,) = await take(store, packing)
        seen = await store.hosts.get(OWN)
        assert (seen.block, seen.agent, seen.run) == (block.id, "agent", "run")
        # Without the rule it has no rate limit, and all requests are packed together.
        await store.hosts.clear(OWN, NOW)
        await tell(store, block, done(ids(block)), final=True, now=LATER)
        assert await store.hosts.wake(LATER, POLITENESS, 100) == 15
        assert [ref.size for ref in (await politely(store, now=LATER)).blocks] == [15]
