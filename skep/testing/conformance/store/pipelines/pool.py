"""Conformance tests for the message pool: claims, tokens, expiry, and a ledger that adds up."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from skep.errors import InvalidInput
from skep.model.pipelines.pool import NewPooled, Pooled, PoolLedger, PoolState, Settled
from skep.store.ports import Store
from skep.testing.conformance.store.ground import LATER, NOW


def message(name: object, **fields: Any) -> NewPooled:
    return NewPooled(**{"origin": f"in/{name}", "input": "in", "body": b"{}", **fields})


def done(one: Pooled) -> Settled:
    return Settled(one.id, one.token, "done")


async def put(store: Store, count: int = 1, pipeline: str = "p", **fields: Any) -> None:
    new = [message(number, **fields) for number in range(count)]
    assert await store.pool.put(pipeline, new, NOW) == count


async def claim(
    store: Store, now: float = NOW, limit: int = 100, holder: str = "a"
) -> list[Pooled]:
    return await store.pool.claim("p", holder, now, now + LATER - NOW, limit)


class PoolPromises:
    """What `Pool` promises."""

    async def test_the_pool_returns_what_was_put(self, store: Store) -> None:
        """S5: body, due time, expiry, errors, and the outputs that are done."""
        body = bytes(range(256)) * 10
        new = message(
            "ü/1", body=body, due=NOW - 5, expires=NOW + 5, errors=2, done=("0.0.a", "1.0.ü"),
            stage="extras", reason="r" * 5000,
        )  # fmt: skip
        assert await store.pool.put("p", [new], NOW) == 1
        [found] = await claim(store)
        assert (found.origin, found.input, found.body, found.pipeline) == (
            "in/ü/1",
            "in",
            body,
            "p",
        )
        assert (found.due, found.expires, found.errors) == (NOW - 5, NOW + 5, 2)
        assert (found.done, found.stage, found.reason) == (new.done, "extras", "r" * 2000)
        assert (found.tries, found.token, found.put_at) == (1, 1, NOW)

    async def test_the_pool_stores_an_origin_once(self, store: Store) -> None:
        """S6: a repeated call after a lost answer stores nothing twice."""
        new = [message(1), message(2)]
        assert await store.pool.put("p", new, NOW) == 2
        assert await store.pool.put("p", [*new, message(3)], NOW) == 1
        assert await store.pool.put("other", [message(1)], NOW) == 1
        assert await store.pool.ledger("p") == PoolLedger(put=3, waiting=3)
        assert await store.pool.ledger() == PoolLedger(put=4, waiting=4)
        assert await store.pool.put("p", [], NOW) == 0

    async def test_the_pool_claims_only_what_is_due_and_alive(self, store: Store) -> None:
        """S5: time < now, expiry > now or none, and of its own pipeline."""
        kinds: dict[str, dict[str, Any]] = {
            "due": {"due": NOW},
            "early": {"due": NOW + 1},
            "expired": {"due": NOW, "expires": NOW},
            "alive": {"due": NOW - 1, "expires": NOW + 0.5},
            "dead": {"state": PoolState.DEAD},
        }
        await store.pool.put("p", [message(name, **how) for name, how in kinds.items()], NOW)
        await store.pool.put("other", [message("due")], NOW)
        assert [one.origin for one in await claim(store)] == ["in/alive", "in/due"]
        assert [one.origin for one in await claim(store, NOW + 1)] == ["in/early"]

    async def test_the_pool_claims_the_earliest_first_and_no_more_than_asked(
        self, store: Store
    ) -> None:
        new = [message(number, due=NOW - number) for number in (1, 3, 2, 4)]
        await store.pool.put("p", new, NOW)
        found = [await claim(store, limit=2), await claim(store, limit=2)]
        assert [[one.origin for one in some] for some in found] == [
            ["in/4", "in/3"], ["in/2", "in/1"],
        ]  # fmt: skip

    async def test_a_claimed_message_of_the_pool_is_not_claimed_again_until_its_lease_ends(
        self, store: Store
    ) -> None:
        await put(store)
        [first] = await claim(store)
        assert await claim(store, LATER - 1) == []
        [second] = await claim(store, LATER, holder="b")
        assert (second.id, second.tries, second.token) == (first.id, 2, first.token + 1)
        assert await store.pool.settle([done(first)]) == [first.id], "it lost its claim"
        assert await store.pool.ledger("p") == PoolLedger(put=1, waiting=1)
        assert await store.pool.settle([done(second)]) == []
        assert await store.pool.ledger("p") == PoolLedger(put=1, done=1)

    async def test_settling_in_the_pool_is_done_once(self, store: Store) -> None:
        await put(store, 3)
        one, two, three = await claim(store)
        again = Settled(
            two.id, two.token, "again", due=NOW + 60, expires=NOW + 99, errors=3, done=("x",),
            stage="extras", reason="later",
        )  # fmt: skip
        dead = Settled(three.id, three.token, "dead", errors=6, reason="limit")
        settled = [done(one), again, dead]
        assert await store.pool.settle(settled) == []
        assert await store.pool.ledger("p") == PoolLedger(put=3, waiting=1, dead=1, done=1)
        assert await store.pool.settle(settled) == [one.id, two.id, three.id]
        assert await store.pool.ledger("p") == PoolLedger(put=3, waiting=1, dead=1, done=1)
        assert await claim(store, NOW + 59) == []
        [back] = await claim(store, NOW + 60)
        assert (back.errors, back.done, back.reason, back.expires) == (3, ("x",), "later", NOW + 99)
        [kept] = await store.pool.find("p", PoolState.DEAD, 0, 10)
        assert (kept.errors, kept.reason) == (6, "limit")
        assert await store.pool.settle([]) == []

    async def test_the_pool_releases_what_a_holder_has(self, store: Store) -> None:
        await put(store, 3)
        await claim(store, limit=2)
        await claim(store, limit=1, holder="b")
        assert await store.pool.release("a") == 2
        assert len(await claim(store, holder="c")) == 2
        assert await store.pool.release("nothing") == 0

    async def test_expired_messages_of_the_pool_are_dead(self, store: Store) -> None:
        """S5: past its expiry a message rests as dead."""
        new = [message(n, due=NOW, expires=NOW + n, reason="no data") for n in (1, 2, 9)]
        await store.pool.put("p", [*new, message("without")], NOW)
        assert await store.pool.expire(NOW, 10) == 0
        assert await store.pool.expire(NOW + 2, 1) == 1
        assert await store.pool.expire(NOW + 2, 10) == 1
        found = await store.pool.find("p", PoolState.DEAD, 0, 10)
        assert [one.reason for one in found] == ["expired: no data"] * 2
        assert await store.pool.ledger("p") == PoolLedger(put=4, waiting=2, dead=2)

    async def test_a_held_message_of_the_pool_does_not_expire(self, store: Store) -> None:
        await put(store, expires=NOW + 1)
        [held] = await claim(store)
        assert await store.pool.expire(NOW + 2, 10) == 0
        assert await store.pool.settle([done(held)]) == []

    async def test_dead_messages_of_the_pool_are_sent_again_or_discarded(
        self, store: Store
    ) -> None:
        """S5: a dead message can be looked at, and sent again by a person."""
        await put(store, 4, state=PoolState.DEAD, errors=6, expires=NOW - 1)
        await put(store, 1, pipeline="other", state=PoolState.DEAD)
        ids = [one.id for one in await store.pool.find("p", None, 0, 10)]
        assert await store.pool.send_again("p", ids[:1], NOW) == 1
        assert await store.pool.send_again("other", ids, NOW) == 0
        assert await store.pool.discard("p", ids[1:2]) == 1
        assert await store.pool.discard("p", []) == 0
        [back] = await claim(store)
        assert (back.id, back.errors, back.expires) == (ids[0], 0, 0)
        assert await store.pool.send_again("p", None, NOW) == 2
        assert await store.pool.discard("p", None) == 3
        assert await store.pool.settle([done(back)]) == [back.id], "it was discarded"
        assert await store.pool.ledger("p") == PoolLedger(put=4, discarded=4)
        assert await store.pool.ledger("other") == PoolLedger(put=1, dead=1)

    async def test_the_pool_is_read_in_pages(self, store: Store) -> None:
        await put(store, 5)
        await put(store, 2, pipeline="other")
        first = await store.pool.find("", None, 0, 4)
        rest = await store.pool.find("", None, first[-1].id, 10)
        assert [one.pipeline for one in (*first, *rest)] == ["p"] * 5 + ["other"] * 2
        assert await store.pool.find("p", PoolState.DEAD, 0, 10) == []

    async def test_the_pool_refuses_an_origin_that_is_too_long(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.pool.put("p", [message("x" * 300), message(1)], NOW)
        assert await store.pool.ledger() == PoolLedger()

    async def test_two_centers_never_hold_one_message_of_the_pool(
        self, store: Store, other_store: Store
    ) -> None:
        await put(store, 200)
        calls = [
            claim(one, limit=10, holder=str(n)) for n in range(20) for one in (store, other_store)
        ]
        claims = await asyncio.gather(*calls)
        taken = [one.id for some in claims for one in some]
        assert len(taken) == len(set(taken))
        rest = [one for _ in range(30) for one in await claim(store, limit=10)]
        assert len(taken) + len(rest) == 200

    async def test_the_ledger_of_the_pool_adds_up_after_any_calls(
        self, store: Store, other_store: Store
    ) -> None:
        """Two centers put, claim, settle, lose leases, expire, resend and discard at random."""
        await asyncio.gather(*(_walk(one, seed) for seed, one in enumerate((store, other_store))))
        ledger = await store.pool.ledger("p")
        assert ledger.put > 0
        assert ledger.unaccounted == 0
        assert ledger.waiting + ledger.dead == len(await store.pool.find("p", None, 0, 10_000))
        assert ledger.waiting + ledger.dead == await store.pool.size("p")
        assert await store.pool.size("unknown") == 0


async def _walk(store: Store, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a test, repeated by its seed
    held: list[Pooled] = []
    for step in range(60):
        now = NOW + step
        match random.randrange(6):
            case 0 | 1:
                names = random.sample(range(400), 10)
                new = [message(n, due=now, expires=random.choice([0, now + 9])) for n in names]
                await store.pool.put("p", new, now)
            case 2 | 3:
                held += await store.pool.claim("p", f"c{seed}", now, now + 5, 8)
            case 4:
                some = [random.choice([done(one), _again(one, now), _dead(one)]) for one in held]
                await store.pool.settle(some)
                held = []
            case _:
                await store.pool.expire(now, 5)
                await store.pool.send_again("p", None, now)
                found = await store.pool.find("p", None, 0, 2)
                await store.pool.discard("p", [one.id for one in found])


def _again(one: Pooled, now: float) -> Settled:
    return Settled(one.id, one.token, "again", due=now + 2, errors=one.errors + 1)


def _dead(one: Pooled) -> Settled:
    return Settled(one.id, one.token, "dead")
