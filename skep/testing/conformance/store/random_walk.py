"""A random walk through the store and its model, and centers that race each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from skep.model.block import BlockReport, Held, Leased
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.blocks import RetryRule, Settlement
from skep.store.ports.requests import PackPlan
from skep.testing.conformance.store.ground import (
    LEASE_LIMIT,
    NOW,
    assert_accounted,
    ledger,
    new_run,
    row,
    rows,
)
from skep.testing.conformance.store.model import ModelBlock, ModelStore
from skep.testing.conformance.store.reports import done, failed, ids, settlement, works

STEPS = 300
RUNS = ("one", "two", "three")
AGENTS = ("a", "b", "c")


class Walk:
    """Each step makes the same call on the store and the model, and compares the results."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.rng = Random(seed)  # noqa: S311 - a walk that can be walked again
        self.model = ModelStore()
        self.now = NOW
        self.numbers: dict[tuple[str, str], int] = {}

    async def step(self) -> None:
        self.now += self.rng.random() * 3
        steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self.accept),
            (6, self.pack),
            (8, self.lease),
            (10, self.settle),
            (2, self.give_back),
            (3, self.reap),
            (3, self.sweep),
            (1, self.revive),
        ]
        (chosen,) = self.rng.choices([s for _, s in steps], [weight for weight, _ in steps])
        await chosen()

    async def check(self) -> None:
        for run in RUNS:
            read = await self.store.ledgers.read(run)
            assert read == self.model.ledger(run) == await self.store.ledgers.audit(run)

    def live_run(self) -> str:
        return self.rng.choice([run for run in RUNS if run not in self.model.cancelled])

    async def accept(self) -> None:
        run = self.live_run()
        names = [str(self.rng.randrange(400)) for _ in range(self.rng.randrange(30))]
        expires_at = self.rng.choice((None, None, self.now + 12))
        offered = [row(name, expires_at=expires_at) for name in names]
        accepted = await self.store.requests.accept(run, offered, self.now)
        new = self.model.accept(run, [one.uri for one in offered], expires_at)
        assert (accepted.new, accepted.known) == (new, len(names) - new)

    async def pack(self) -> None:
        run, limit, size = (
            self.rng.choice(RUNS),
            self.rng.randrange(1, 30),
            self.rng.randrange(1, 9),
        )
        packing = await self.store.requests.pack([PackPlan(run, 5, limit, size)], self.now)
        refs = packing.blocks
        chosen = self.model.to_pack(run, limit)
        assert sum(ref.size for ref in refs) == len(chosen)
        for ref in refs:
            members, chosen = chosen[: ref.size], chosen[ref.size :]
            self.model.new_block(ref.id, run, members)

    async def lease(self) -> None:
        if not self.model.blocks:
            return
        some = self.rng.sample(sorted(self.model.blocks), min(6, len(self.model.blocks)))
        agent, until = self.rng.choice(AGENTS), self.now + 8
        given = await self.store.blocks.lease(some, agent, self.now, until)
        expected = self.model.lease(some, agent, self.now, until)
        assert [(b.id, b.token) for b in given] == [(b.id, b.token) for b in expected]
        for leased, block in zip(given, expected, strict=True):
            self.compare(leased, block)

    def compare(self, leased: Leased, block: ModelBlock) -> None:
        found = works(leased)
        assert [work.uri for work in found] == [request.uri for request in block.members]
        for work in found:
            self.numbers[leased.run, work.uri] = work.id
        still_open = {self.numbers[r.run, r.uri] for r in block.open}
        assert {work.id for work in found} - set(leased.skip) == still_open

    def any_holder(self) -> tuple[ModelBlock, int, str] | None:
        """A block, with a token and an agent that are mostly valid."""
        known = [block for block in self.model.blocks.values() if block.token]
        if not known:
            return None
        block = self.rng.choice(known[-25:])
        token = block.token - (self.rng.random() < 0.1)
        agent = block.agent if self.rng.random() < 0.9 else self.rng.choice(AGENTS)
        return block, token, agent or "a"

    async def settle(self) -> None:
        if (chosen := self.any_holder()) is None:
            return
        block, token, agent = chosen
        final = self.rng.random() < 0.6
        outcomes, again_at = self.outcomes(block)
        fresh = {self.numbers[r.run, r.uri]: r for r in block.open}
        verdict = self.model.verdict(block.id, token, agent)
        new = [o for o in outcomes if o.id in fresh] if verdict == "stored" else []
        if verdict == "stored":
            for outcome in new:
                self.model.end(fresh[outcome.id], outcome.failure, again_at.get(outcome.id))
            self.model.advance(block, final=final)
            verdict = "stored" if new or final else "duplicate"
        report = BlockReport(block.id, token, outcomes, final)
        (answer,) = await self.store.blocks.settle(
            [Settlement(report, agent, RetryRule(again_at))], self.now
        )
        assert (answer.verdict, answer.stored) == (verdict, len(new))

    def outcomes(self, block: ModelBlock) -> tuple[list[Outcome], dict[int, float]]:
        numbers = [self.numbers[r.run, r.uri] for r in block.members]
        some = self.rng.sample(numbers, self.rng.randrange(len(numbers) + 1))
        bad = [number for number in some if self.rng.random() < 0.3]
        again_at = {number: self.now + 5 for number in bad if self.rng.random() < 0.6}
        return failed(bad) + done(set(some) - set(bad)), again_at

    async def give_back(self) -> None:
        if (chosen := self.any_holder()) is None:
            return
        block, token, agent = chosen
        refs = await self.store.blocks.give_back([Held(block.id, token)], agent, self.now, "x")
        if self.model.holds(block.id, token, agent):
            self.model.give_back(block)
        else:
            assert refs == []

    async def reap(self) -> None:
        dead = [agent for agent in AGENTS if self.rng.random() < 0.2]
        freed = await self.store.blocks.reap(self.now, dead, 6, 1000)
        overdue = self.model.overdue(self.now, dead)
        assert list(dict.fromkeys(item.block for item in freed)) == [block.id for block in overdue]
        for block in overdue:
            alone = self.model.lose(block, 6)
            refs = [item.ref for item in freed if item.block == block.id and item.ref]
            if alone:
                for ref, request in zip(refs, alone, strict=True):
                    self.model.new_block(ref.id, block.run, [request], block.losses)

    async def sweep(self) -> None:
        assert await self.store.requests.wake(self.now, 1000) == self.model.wake(self.now)
        assert await self.store.requests.expire(self.now, 1000) == self.model.expire(self.now)

    async def revive(self) -> None:
        run = self.live_run()
        assert await self.store.requests.revive(run) == self.model.revive(run)

    async def cancel(self, run: str) -> None:
        await self.store.runs.move(run, RunState.CANCELLED)
        assert await self.store.requests.cancel(run, self.now) == self.model.cancel(run)


class WalkPromises:
    async def test_a_long_walk_agrees_with_the_model(self, store: Store) -> None:
        """A7: after each step the ledger equals the model's."""
        walk = Walk(store, seed=7)
        for run in RUNS:
            await new_run(store, run)
        for number in range(STEPS):
            if number == STEPS // 2:
                await walk.cancel("two")
            await walk.step()
            await walk.check()
        total = await store.ledgers.read()
        assert total.accepted > 200
        assert all((total.done, total.dead, total.cancelled, total.expired))


class RacePromises:
    async def test_two_centers_do_all_at_once(self, store: Store, other_store: Store) -> None:
        """A7: packing, leasing, reporting and reaping race; each request ends once."""
        await new_run(store, "one")
        await new_run(store, "two")
        for run in ("one", "two"):
            await store.requests.accept(run, rows(600), NOW)
        race = _Race((store, other_store))
        async with asyncio.timeout(50):
            await asyncio.gather(*(race.work(number) for number in range(10)))
        for run in ("one", "two"):
            assert await ledger(store, run) == Ledger(accepted=600, done=600)
        assert sorted(race.stored) == sorted(set(race.stored)), "each outcome counted once"
        assert len(race.stored) == 1200

    async def test_a_run_is_cancelled_under_the_feet_of_another_center(
        self, store: Store, other_store: Store
    ) -> None:
        """Requests that were active when the run ended have ended too."""
        for number in range(6):
            run = f"run-{number}"
            await new_run(store, run)
            await store.requests.accept(run, rows(100), NOW)
            plan = PackPlan(run, 5, 60, 10)
            refs = (await store.requests.pack([plan], NOW)).blocks
            held = await store.blocks.lease([ref.id for ref in refs[:3]], "a", NOW, NOW + 9)
            retry = {number: NOW + 5 for block in held for number in ids(block)}
            reports = [settlement(b, failed(ids(b)[:5]), retry, agent="a") for b in held]
            await asyncio.gather(
                _cancel(store, run),
                other_store.requests.accept(run, rows(50, start=100), NOW),
                other_store.requests.pack([plan], NOW),
                other_store.blocks.settle(reports, NOW),
                return_exceptions=True,
            )
            await store.blocks.reap(NOW + 60, [], LEASE_LIMIT, 100)
            counts = await ledger(store, run)
            assert counts.open == 0, counts.line()
        await assert_accounted(store)


async def _cancel(store: Store, run: str) -> None:
    await store.runs.move(run, RunState.CANCELLED)
    await store.requests.cancel(run, NOW)


class _Race:
    """Ten workers on two centers, until everything has ended."""

    def __init__(self, centers: tuple[Store, Store]) -> None:
        self._centers = centers
        self.stored: list[int] = []

    async def work(self, number: int) -> None:
        rng = Random(number)  # noqa: S311 - the same race every time, as far as it goes
        agent = f"agent-{number}"
        store = self._centers[number % 2]
        for turn in range(400):
            now = NOW + turn
            plans = [PackPlan(run, 5, 70, 7) for run in rng.sample(("one", "two"), 2)]
            await store.requests.pack(plans, now)
            ready = await store.blocks.claimable(30)
            some = rng.sample(ready, min(len(ready), 5))
            blocks = await store.blocks.lease([ref.id for ref in some], agent, now, now + 400)
            await self._report(rng, blocks, agent, now)
            if rng.random() < 0.2:
                await store.blocks.reap(now, [f"agent-{rng.randrange(10)}"], 10**6, 5)
            if not (await store.ledgers.read()).open:
                return
        raise AssertionError((await store.ledgers.read()).line())

    async def _report(self, rng: Random, blocks: list[Leased], agent: str, now: float) -> None:
        if not blocks:
            return
        if rng.random() < 0.2:
            held = [block.held for block in blocks]
            await self._centers[0].blocks.give_back(held, agent, now, "race")
            return
        items = [settlement(b, done(set(ids(b)) - set(b.skip)), agent=agent) for b in blocks]
        for verdict, item in zip(
            await rng.choice(self._centers).blocks.settle(items, now), items, strict=True
        ):
            if verdict.verdict == "stored":
                assert verdict.stored == len(item.report.outcomes)
                self.stored += [outcome.id for outcome in item.report.outcomes]
