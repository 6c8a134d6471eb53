"""Conformance tests of a store for agents, tokens and alerts. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import UnknownAgent
from skep.model.fleet.agent import Registration, Vitals
from skep.model.fleet.token import FoundToken
from skep.store.ports import Store
from skep.store.ports.blocks import Placed
from skep.testing.conformance.store.ground import NOW
from skep.testing.conformance.store.leasing import leased_one
from skep.testing.conformance.store.reports import done, ids, settle, settlement

DIGEST = bytes(range(32))


class AgentPromises:
    async def test_registering_twice_is_one_agent(self, store: Store) -> None:
        first = Registration("a1", "zoë", labels={"site": "köln"}, cpus=2, kinds=("http", "git"))
        view = await store.agents.register(first, NOW)
        assert (view.registration, view.enabled) == (first, True)
        await store.agents.heartbeat([("a1", Vitals(cpu=0.5))], NOW + 1)
        await store.agents.enable("a1", False)
        second = Registration("a1", "zoë", version="2")
        view = await store.agents.register(second, NOW + 5)
        assert (view.registration, view.enabled) == (second, False), "a command outlives a restart"
        assert (view.registered_at, view.seen_at, view.vitals.cpu) == (NOW + 5, NOW + 5, 0.5)
        assert await store.agents.all() == [view]

    async def test_many_register_at_once(self, store: Store, other_store: Store) -> None:
        calls = [
            center.agents.register(Registration(f"a{number % 5}", f"n{number % 5}"), NOW)
            for center in (store, other_store)
            for number in range(15)
        ]
        await asyncio.gather(*calls)
        assert [view.id for view in await store.agents.all()] == [f"a{n}" for n in range(5)]

    async def test_agents_come_by_name_and_differ_by_case(self, store: Store) -> None:
        for number, name in (("1", "b"), ("A", "a"), ("a", "c")):
            await store.agents.register(Registration(number, name), NOW)
        assert [view.id for view in await store.agents.all()] == ["A", "1", "a"]

    async def test_heartbeats_are_stored_and_unknown_agents_named(self, store: Store) -> None:
        await store.agents.register(Registration("a1", "one"), NOW)
        beats = [("ghost", Vitals()), ("a1", Vitals(active=3, free_memory=2**40))]
        assert await store.agents.heartbeat(beats, NOW + 3) == ["ghost"]
        assert await store.agents.heartbeat([], NOW) == []
        (view,) = await store.agents.all()
        assert (view.seen_at, view.vitals) == (NOW + 3, Vitals(active=3, free_memory=2**40))
        assert view.alive(NOW + 10, 11.0)
        assert not view.alive(NOW + 15, 11.0)

    async def test_the_history_of_heartbeats_is_bounded(self, store: Store) -> None:
        await store.agents.register(Registration("a1", "one"), NOW)
        for second in range(10):
            await store.agents.heartbeat([("a1", Vitals(rate=second))], NOW + second)
        history = await store.agents.vitals("a1", NOW + 4)
        assert [(at, vitals.rate) for at, vitals in history] == [(NOW + n, n) for n in range(4, 10)]
        assert await store.agents.forget_vitals(NOW + 8) == 8
        assert await store.agents.forget_vitals(NOW + 8) == 0
        assert len(await store.agents.vitals("a1", 0)) == 2
        assert await store.agents.vitals("ghost", 0) == []

    async def test_an_unknown_agent_is_named(self, store: Store) -> None:
        with pytest.raises(UnknownAgent, match="ghost"):
            await store.agents.enable("ghost", True)


class RecordPromises:
    async def test_tokens(self, store: Store) -> None:
        assert await store.tokens.find(DIGEST) is None
        await store.tokens.add(DIGEST, "agent", "a1", NOW)
        await store.tokens.add(DIGEST, "admin", "thief", NOW)
        assert await store.tokens.find(DIGEST) == FoundToken("agent", "a1")
        assert await store.tokens.find(DIGEST[::-1]) is None
        both = [DIGEST, DIGEST[::-1]]
        assert await store.tokens.find_many(both) == {DIGEST: FoundToken("agent", "a1")}
        assert await store.tokens.find_many([]) == {}
        assert await store.tokens.revoke("A1") == 0
        assert await store.tokens.revoke("a1") == 1
        assert await store.tokens.revoke("a1") == 0
        assert await store.tokens.find(DIGEST) is None
        await store.tokens.add(DIGEST, "agent", "a1", NOW)
        assert await store.tokens.find(DIGEST) is None, "a revoked token stays revoked"

    async def test_alerts_are_counted_not_repeated(self, store: Store) -> None:
        await store.alerts.raise_("lane_full", "run", "first", NOW)
        await store.alerts.raise_("lane_full", "other", "hm", NOW + 1)
        await asyncio.gather(
            *(store.alerts.raise_("lane_full", "run", "näwest", NOW + 2) for _ in range(9))
        )
        newest, older = await store.alerts.recent(10)
        assert (newest["subject"], newest["detail"], newest["times"]) == ("run", "näwest", 10)
        assert (newest["first_at"], newest["last_at"]) == (NOW, NOW + 2)
        assert (older["kind"], older["subject"]) == ("lane_full", "other")
        assert len(await store.alerts.recent(1)) == 1

    async def test_the_end_of_a_segment_only_grows(self, store: Store) -> None:
        block = await leased_one(store, 3)
        for number, offset in zip(ids(block), (100, 50, 200), strict=True):
            part = done([number])
            part[0].length = 10
            item = settlement(
                block, part, final=False, frames=b"x" * 10, placed=Placed("seg", offset)
            )
            await settle(store, item)
            assert await store.segments.committed_end("seg") == max(110, offset + 10)

    async def test_it_answers_and_describes_itself(self, store: Store) -> None:
        await store.ping()
        assert "://" in store.describe()
