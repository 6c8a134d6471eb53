"""Conformance tests of a store for sessions, commands and one-time tokens of agents."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from skep.errors import Conflict, Fenced, Forbidden, InvalidInput, NotFound, Unauthorized
from skep.model.fleet.agent import Arrival, Registration, Vitals
from skep.model.fleet.token import FoundToken, Grant, token_id
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW

ONE = Registration("a1", "one", labels={"site": "attic", "old": "x"})
ONCE, MINE, OTHER = b"o" * 32, b"m" * 32, b"t" * 32


class SessionPromises:
    async def test_one_secret_for_agents_files(self, store: Store, other_store: Store) -> None:
        """E7: the first secret stays, whichever center asks for it."""
        first = await store.agents.files_secret(b"a" * 32)
        assert first == await other_store.agents.files_secret(b"b" * 32) == b"a" * 32

    async def test_every_process_raises_the_session(self, store: Store) -> None:
        """Fault 66: a process that registers again keeps its own."""
        first = await store.agents.register(ONE, NOW, Arrival(mark="m1"))
        again = await store.agents.register(ONE, NOW, Arrival(session=1, mark="m1"))
        second = await store.agents.register(ONE, NOW, Arrival(mark="m2", known=("m1",)))
        assert [view.session for view in (first, again, second)] == [1, 1, 2]

    async def test_tries_of_one_process_are_one_session(self, store: Store) -> None:
        """Fault 10: whichever try was answered, none fences the process out."""
        tries = [await store.agents.register(ONE, NOW + n, Arrival(mark="m1")) for n in range(3)]
        assert [(view.session, view.registered_at) for view in tries] == [
            (1, NOW),
            (1, NOW + 1),
            (1, NOW + 2),
        ]

    async def test_a_late_try_changes_nothing(self, store: Store) -> None:
        """Fault 10: after a heartbeat of the process, an earlier try changes nothing."""
        first = await store.agents.register(ONE, NOW, Arrival(mark="m1"))
        await store.agents.heartbeat([(ONE.id, Vitals(active=3))], NOW + 1, {ONE.id: 1})
        await store.agents.command(ONE.id, "restart", NOW + 1)
        other = msgspec.structs.replace(ONE, group="elsewhere")
        late = await store.agents.register(other, NOW + 2, Arrival(mark="m1"))
        assert (late.session, late.registered_at, late.seen_at) == (1, NOW, NOW + 1)
        assert (late.registration.group, late.has_beaten) == (ONE.group, True)
        assert not first.has_beaten
        assert late.pending, "its process is still to obey"

    async def test_a_try_of_a_process_that_died_is_fenced_out(self, store: Store) -> None:
        """Fault 10: the next process has registered and knows the one before."""
        await store.agents.register(ONE, NOW, Arrival(mark="m2", known=("m0", "m1")))
        with pytest.raises(Fenced):
            late = Arrival(mark="m1", known=("m0",), alive_after=11.0)
            await store.agents.register(ONE, NOW + 1, late)
        assert (await store.agents.get(ONE.id)).session == 1

    async def test_news_are_changes_and_silence(self, store: Store) -> None:
        """C9: centers read changed and silent agents, not all agents with heartbeats."""
        for name in ("beats", "silent", "ahead", "cordoned", "labelled", "ordered", "obeyed"):
            await store.agents.register(Registration(name, name), NOW)
        await store.agents.command("obeyed", "drain", NOW)
        everybody = await store.agents.news(NOW, NOW - 1, NOW + 99)
        assert len(everybody) == 7, "all of them have just come"
        names = [view.id for view in everybody]
        at = {"silent": NOW + 1, "ahead": NOW + 50}
        for name in names:
            await store.agents.heartbeat([(name, Vitals())], at.get(name, NOW + 11))
        later = NOW + 12
        await store.agents.enable("cordoned", False, "cordoned", later)
        await store.agents.label("labelled", {"site": "attic"}, later)
        await store.agents.command("ordered", "exit", later)
        await store.agents.acknowledged("obeyed", 1, later)
        news = await store.agents.news(NOW + 5, NOW + 1, NOW + 23)
        assert {view.id for view in news} == set(names) - {"beats"}
        found = {view.id: view for view in news}
        assert (found["cordoned"].cordoned, found["ordered"].pending) == (True, True)
        assert found["labelled"].registration.labels == {"site": "attic"}
        assert (found["silent"].seen_at, found["obeyed"].pending) == (NOW + 1, False)

    async def test_an_older_session_is_fenced_out(self, store: Store) -> None:
        """Fault 66: neither its heartbeat nor its registration changes anything."""
        await store.agents.register(ONE, NOW, Arrival(mark="m1"))
        await store.agents.register(ONE, NOW, Arrival(mark="m2", known=("m1",)))
        beat = [("a1", Vitals(active=7))]
        assert await store.agents.heartbeat(beat, NOW + 1, {"a1": 1}) == ["a1"]
        with pytest.raises(Fenced, match="session 2"):
            await store.agents.register(ONE, NOW + 1, Arrival(session=1, mark="m1"))
        view = await store.agents.get("a1")
        assert (view.seen_at, view.vitals.active, view.session) == (NOW, 0, 2)
        assert await store.agents.heartbeat(beat, NOW + 1, {"a1": 2}) == []
        assert await store.agents.heartbeat(beat, NOW + 1) == [], "agents of before have no session"

    async def test_an_old_copy_is_accepted_only_without_a_live_one(self, store: Store) -> None:
        """Fault 66: two copies do not fence each other out without end."""
        await store.agents.register(ONE, NOW, Arrival(mark="m1"))
        await store.agents.register(ONE, NOW, Arrival(mark="m2", known=("m1",)))
        stale = Arrival(mark="m3", known=("m1",), alive_after=11.0)
        with pytest.raises(Fenced, match="older copy"):
            await store.agents.register(ONE, NOW + 5, stale)
        assert (await store.agents.register(ONE, NOW + 12, stale)).session == 3

    async def test_sessions_of_two_centers_differ(self, store: Store, other_store: Store) -> None:
        """Fault 66: twenty processes at once, twenty numbers."""
        calls = [
            center.agents.register(ONE, NOW, Arrival(mark=f"{name}{number}"))
            for name, center in (("a", store), ("b", other_store))
            for number in range(10)
        ]
        views = await asyncio.gather(*calls)
        assert sorted(view.session for view in views) == list(range(1, 21))


class AgentCommandPromises:
    async def test_a_command_stays_open_until_it_is_acknowledged(self, store: Store) -> None:
        await store.agents.register(ONE, NOW, Arrival(mark="m1"))
        first = await store.agents.command("a1", "drain", NOW + 1)
        second = await store.agents.command("a1", "exit", NOW + 2)
        assert (first.no, second.no) == (1, 2)
        assert (await store.agents.get("a1")).pending
        await store.agents.acknowledged("a1", 1, NOW + 3)
        assert (await store.agents.get("a1")).pending
        await store.agents.acknowledged("a1", 2, NOW + 4)
        await store.agents.acknowledged("a1", 2, NOW + 5)
        assert not (await store.agents.get("a1")).pending
        ended = [(o.name, o.ended_at, o.outcome) for o in await store.agents.commands("a1")]
        assert ended == [("exit", NOW + 4, "done"), ("drain", NOW + 3, "done")]

    async def test_a_new_process_need_not_exit_again(self, store: Store) -> None:
        """C10, fault 7: commands for an earlier process are not sent to the next one."""
        await store.agents.register(ONE, NOW, Arrival(mark="m1"))
        await store.agents.command("a1", "restart", NOW)
        await store.agents.register(ONE, NOW, Arrival(session=1, mark="m1"))
        assert (await store.agents.get("a1")).pending, "the same process has not restarted"
        await store.agents.register(ONE, NOW + 1, Arrival(mark="m2", known=("m1",)))
        assert not (await store.agents.get("a1")).pending
        (order,) = await store.agents.commands("a1")
        assert (order.ended_at, order.outcome) == (NOW + 1, "a new process registered")

    async def test_an_agent_that_gets_work_again_need_not_drain(self, store: Store) -> None:
        await store.agents.register(ONE, NOW)
        view = await store.agents.enable("a1", False, "draining", NOW)
        assert (view.enabled, view.aside) == (False, "draining")
        await store.agents.command("a1", "drain", NOW)
        view = await store.agents.enable("a1", True, "", NOW + 1)
        assert (view.enabled, view.aside, view.pending) == (True, "", False)
        (order,) = await store.agents.commands("a1")
        assert order.outcome == "withdrawn"

    async def test_orders_are_bounded(self, store: Store) -> None:
        await store.agents.register(ONE, NOW)
        for _ in range(60):
            await store.agents.command("a1", "drain", NOW)
        kept = await store.agents.commands("a1", 1000)
        assert [order.no for order in kept] == list(range(60, 10, -1))

    async def test_labels_of_people_outlive_a_registration(self, store: Store) -> None:
        await store.agents.register(ONE, NOW)
        view = await store.agents.label("a1", {"site": "cellar", "old": None, "new": "ü"}, NOW)
        assert view.registration.labels == {"site": "cellar", "new": "ü"}
        view = await store.agents.register(ONE, NOW + 1)
        assert view.registration.labels == {"site": "cellar", "new": "ü"}
        with pytest.raises(InvalidInput, match="at most"):
            await store.agents.label("a1", {f"l{number}": "" for number in range(70)}, NOW)


class TokenPromises:
    async def test_a_one_time_token_is_used_once(self, store: Store, other_store: Store) -> None:
        """Fault 65: also if it is used at two centers at the same time."""
        await store.tokens.add(ONCE, "join", "", NOW, "attic", NOW + 60, Grant("home", {"x": "y"}))
        tries = [
            center.tokens.join(ONCE, f"a{number}", bytes([number]) * 32, NOW + 1)
            for number, center in enumerate([store, other_store] * 5)
        ]
        results = await asyncio.gather(*tries, return_exceptions=True)
        won = [result for result in results if isinstance(result, Grant)]
        assert won == [Grant("home", {"x": "y"})]
        assert sum(isinstance(result, Conflict) for result in results) == 9
        found = [await store.tokens.find(bytes([number]) * 32) for number in range(10)]
        assert sum(token is not None for token in found) == 1

    async def test_a_lost_answer_can_be_asked_for_again(self, store: Store) -> None:
        """Fault 65: only by the holder of the token."""
        await store.tokens.add(ONCE, "join", "", NOW, "", NOW + 60, Grant("home"))
        assert await store.tokens.join(ONCE, "a1", MINE, NOW, dry=True) == Grant("home")
        for _ in range(2):
            assert await store.tokens.join(ONCE, "a1", MINE, NOW) == Grant("home")
        assert await store.tokens.find(MINE) == FoundToken("agent", "a1", None, Grant("home"))
        for agent, credential in (("a1", OTHER), ("a2", MINE), ("a2", OTHER)):
            with pytest.raises(Conflict, match="used already"):
                await store.tokens.join(ONCE, agent, credential, NOW)
        assert await store.tokens.revoke("a1") == 1
        with pytest.raises(Conflict, match="used already"):
            await store.tokens.join(ONCE, "a1", MINE, NOW)

    async def test_an_invalid_token_lets_no_agent_join(self, store: Store) -> None:
        """Fault 65: expired, revoked, of another role, unknown, for another agent."""
        await store.tokens.add(ONCE, "join", "a7", NOW, "", NOW + 60)
        with pytest.raises(Forbidden, match="a7"):
            await store.tokens.join(ONCE, "a1", MINE, NOW)
        with pytest.raises(Unauthorized, match="expired"):
            await store.tokens.join(ONCE, "a7", MINE, NOW + 60)
        await store.tokens.revoke_one(token_id(ONCE))
        await store.tokens.add(OTHER, "agent", "a7", NOW)
        for digest in (ONCE, OTHER, b"?" * 32):
            with pytest.raises(Unauthorized):
                await store.tokens.join(digest, "a7", MINE, NOW)
        assert await store.tokens.find(MINE) is None

    async def test_no_machine_joins_as_an_existing_agent(self, store: Store) -> None:
        """Fault 66: except with a token for this agent, which ends the old credential."""
        await store.agents.register(ONE, NOW)
        await store.tokens.add(OTHER, "agent", "a1", NOW)
        await store.tokens.add(ONCE, "join", "", NOW)
        with pytest.raises(Conflict, match="already"):
            await store.tokens.join(ONCE, "a1", MINE, NOW)
        await store.tokens.add(b"2" * 32, "join", "a1", NOW)
        await store.tokens.join(b"2" * 32, "a1", MINE, NOW)
        assert await store.tokens.find(OTHER) is None
        assert await store.tokens.find(MINE) == FoundToken("agent", "a1")

    async def test_tokens_are_listed_and_revoked_by_name(self, store: Store) -> None:
        await store.tokens.add(MINE, "viewer", "", NOW, "zoë", NOW + 9)
        await store.tokens.add(OTHER, "driver", "run", NOW + 1)
        await store.tokens.add(ONCE, "join", "", NOW + 2)
        views = await store.tokens.all()
        assert [(view.id, view.note) for view in views] == [
            (b"o".hex() * 8, ""),
            (b"m".hex() * 8, "zoë"),
        ]
        assert [view.state(NOW + 9) for view in views] == ["live", "expired"]
        assert not await store.tokens.revoked(MINE)
        assert (await store.tokens.revoke_one(views[1].id)).revoked
        assert await store.tokens.revoked(MINE)
        assert not await store.tokens.revoked(b"?" * 32), "it never existed"
        assert await store.tokens.find(MINE) is None
        for name in ("", "zz", "00" * 8, "m" * 200):
            with pytest.raises(NotFound):
                await store.tokens.revoke_one(name)
        assert await store.tokens.revoke("run") == 0, "an agent's revocation spares a run's driver"
        assert await store.tokens.revoke_driver("run", b"?" * 32) == 0
        assert await store.tokens.revoke_driver("run") == 1
        assert await store.tokens.forget(NOW) == 0
        assert await store.tokens.forget(NOW + 5) == 1, "the viewer's stays revoked"
        assert [view.state(NOW) for view in await store.tokens.all()] == ["live", "revoked"]
