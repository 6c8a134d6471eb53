"""What every store promises about sessions, login links and tokens. A part of
`StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import NotFound, Unauthorized
from skep.model.people.scope import Scope
from skep.model.people.user import UserChange, session_id
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW
from skep.testing.conformance.store.people.users import DIGEST, session


def digest(number: int) -> bytes:
    return bytes([number]) * 32


class UserSessionPromises:
    async def test_a_session_has_what_its_user_may_do_now(self, store: Store) -> None:
        await store.users.add("anna", "admin", [], "", NOW)
        await store.users.add("bob", "admin", [], "", NOW)
        await store.sessions.begin(session("anna"), 10)
        assert (await store.users.get("anna")).login_at == NOW
        found = (await store.sessions.find_many([DIGEST, digest(9)]))[DIGEST]
        assert (found.user, found.role, found.disabled) == ("anna", "admin", False)
        assert (found.created_at, found.seen_at, found.expires_at) == (NOW, NOW, NOW + 100)
        await store.users.change("anna", UserChange(role="viewer"), NOW)
        assert (await store.sessions.find_many([DIGEST]))[DIGEST].role == "viewer"
        await store.users.change("anna", UserChange(disabled=True), NOW)
        assert await store.sessions.find_many([DIGEST]) == {}
        with pytest.raises(NotFound):
            await store.sessions.begin(session("anna"), 10)
        with pytest.raises(NotFound):
            await store.sessions.begin(session("ghost"), 10)

    async def test_sessions_are_listed_and_ended(self, store: Store) -> None:
        for name in ("anna", "bob"):
            await store.users.add(name, "viewer", [], "", NOW)
        for number, name in enumerate(("anna", "bob", "anna")):
            await store.sessions.begin(session(name, digest(number), NOW + number), 10)
        ids = [session_id(digest(number)) for number in range(3)]
        assert [one.id for one in await store.sessions.all()] == ids[::-1]
        assert [one.id for one in await store.sessions.all("anna")] == [ids[2], ids[0]]
        assert [one.id for one in await store.sessions.all(limit=1, after=ids[2])] == [ids[1]]
        (first,) = await store.sessions.all("bob")
        assert (first.address, first.client, first.method) == (
            *("192.0.2.1", "Browser 1", "password"),
        )
        with pytest.raises(NotFound):
            await store.sessions.end_one(ids[1], "anna")
        assert (await store.sessions.end_one(ids[1], "bob")).user == "bob"
        for wrong in (ids[1], "x", ""):
            with pytest.raises(NotFound):
                await store.sessions.end_one(wrong)
        assert await store.sessions.end(digest(0))
        assert not await store.sessions.end(digest(0))
        assert await store.sessions.end_all("anna") == 1
        assert await store.sessions.all() == []

    async def test_a_user_has_a_bounded_number_of_sessions(self, store: Store) -> None:
        await store.users.add("anna", "viewer", [], "", NOW)
        for number in range(5):
            await store.sessions.begin(session("anna", digest(number), NOW + number), 3)
        left = [one.id for one in await store.sessions.all("anna")]
        assert left == [session_id(digest(number)) for number in (4, 3, 2)]

    async def test_unused_and_expired_sessions_are_forgotten(self, store: Store) -> None:
        await store.users.add("anna", "viewer", [], "", NOW)
        for number in range(3):
            await store.sessions.begin(session("anna", digest(number), NOW + number), 10)
        await store.sessions.touch({digest(0): NOW + 50, digest(9): NOW, digest(1): NOW - 9})
        assert await store.sessions.forget(NOW + 60, NOW + 1) == 1
        assert await store.sessions.forget(NOW + 100, NOW) == 1
        assert [one.seen_at for one in await store.sessions.all()] == [NOW + 2]

    async def test_a_new_password_ends_the_other_sessions(self, store: Store) -> None:
        await store.users.add("anna", "viewer", [], "", NOW)
        for number in range(3):
            await store.sessions.begin(session("anna", digest(number)), 10)
        await store.login_links.add(digest(7), "anna", NOW, NOW + 9)
        assert await store.users.set_password("anna", "hash", NOW + 1, digest(1)) == 2
        assert list(await store.sessions.find_many([digest(n) for n in range(3)])) == [digest(1)]
        with pytest.raises(Unauthorized):
            await store.login_links.use(digest(7), NOW)
        with pytest.raises(NotFound):
            await store.users.set_password("ghost", "hash", NOW)


class LoginLinkPromises:
    async def test_a_link_is_used_once_by_one(self, store: Store, other_store: Store) -> None:
        await store.users.add("anna", "viewer", [], "", NOW)
        await store.login_links.add(DIGEST, "anna", NOW, NOW + 10)
        calls = [one.login_links.use(DIGEST, NOW + 1) for one in (store, other_store) * 4]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [one for one in found if isinstance(one, str)] == ["anna"]
        assert sum(isinstance(one, Unauthorized) for one in found) == 7

    async def test_a_link_expires_and_needs_an_enabled_user(self, store: Store) -> None:
        for name in ("anna", "bob"):
            await store.users.add(name, "viewer", [], "", NOW)
            await store.login_links.add(
                DIGEST[::-1] if name == "bob" else DIGEST, name, NOW, NOW + 10
            )
        with pytest.raises(Unauthorized):
            await store.login_links.use(DIGEST, NOW + 10)
        await store.users.change("bob", UserChange(disabled=True), NOW)
        with pytest.raises(Unauthorized):
            await store.login_links.use(DIGEST[::-1], NOW + 1)
        with pytest.raises(NotFound):
            await store.login_links.add(digest(1), "bob", NOW, NOW + 10)
        with pytest.raises(Unauthorized):
            await store.login_links.use(digest(2), NOW)


class ScopedTokenPromises:
    async def test_a_token_has_a_scope_and_a_last_use(self, store: Store) -> None:
        scope = Scope(("team=a", "site=köln"))
        await store.tokens.add(DIGEST, "viewer", "", NOW, "dashboard", scope=scope)
        await store.tokens.add(digest(1), "viewer", "", NOW)
        found = await store.tokens.find_many([DIGEST, digest(1)])
        assert (found[DIGEST].scope, found[DIGEST].note) == (scope, "dashboard")
        assert found[digest(1)].scope == Scope()
        await store.tokens.used({DIGEST: NOW + 5, digest(9): NOW})
        views = {view.note: view for view in await store.tokens.all()}
        assert (views["dashboard"].last_used_at, views[""].last_used_at) == (NOW + 5, None)
        assert views["dashboard"].scope == scope.labels
