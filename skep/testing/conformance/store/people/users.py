"""What every store promises about users and groups. A part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Conflict, NotFound, SkepError
from skep.model.people.scope import Scope
from skep.model.people.user import NewSession, User, UserChange
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW

DIGEST = bytes(range(32))


def session(user: str, digest: bytes = DIGEST, at: float = NOW) -> NewSession:
    return NewSession(digest, user, at, at + 100, "192.0.2.1", "Browser 1", "password")


class UserPromises:
    async def test_a_user_is_kept_and_found(self, store: Store) -> None:
        added = await store.users.add("anna", "viewer", [], "hash", NOW)
        assert added == User("anna", "viewer", (), NOW, NOW, has_password=True)
        assert await store.users.get("anna") == added
        assert await store.users.login("anna") == (added, "hash")
        assert await store.users.login("Anna") is None
        with pytest.raises(Conflict, match="anna"):
            await store.users.add("anna", "admin", [], "", NOW)
        with pytest.raises(NotFound, match="bob"):
            await store.users.get("bob")

    async def test_users_are_listed_by_name_in_pages(self, store: Store) -> None:
        for name in ("c", "a", "b"):
            await store.users.add(name, "viewer", [], "", NOW)
        assert [user.name for user in await store.users.all(2)] == ["a", "b"]
        assert [user.name for user in await store.users.all(2, "b")] == ["c"]

    async def test_the_last_admin_stays_an_enabled_admin(self, store: Store) -> None:
        await store.users.add("anna", "admin", [], "", NOW)
        await store.users.add("old", "admin", [], "", NOW)
        await store.users.change("old", UserChange(disabled=True), NOW)
        for change in (UserChange(role="operator"), UserChange(disabled=True)):
            with pytest.raises(Conflict, match="last admin"):
                await store.users.change("anna", change, NOW)
        with pytest.raises(Conflict, match="last admin"):
            await store.users.remove("anna")
        await store.users.remove("old")
        await store.users.add("bob", "admin", [], "", NOW)
        assert (await store.users.remove("anna")).name == "anna"

    async def test_two_centers_cannot_lower_the_last_two_admins(
        self, store: Store, other_store: Store
    ) -> None:
        for name in ("anna", "bob"):
            await store.users.add(name, "admin", [], "", NOW)
        calls = [
            store.users.change("anna", UserChange(role="viewer"), NOW),
            other_store.users.change("bob", UserChange(disabled=True), NOW),
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, SkepError) for one in found) == 1
        admins = [user for user in await store.users.all() if user.role == "admin"]
        assert sum(not user.disabled for user in admins) == 1

    async def test_the_first_admin_is_made_once(self, store: Store, other_store: Store) -> None:
        await store.users.add("bob", "viewer", [], "", NOW)
        calls = [one.users.first_admin("admin", NOW) for one in (store, other_store) * 3]
        found = await asyncio.gather(*calls)
        assert {user.name for user in found} == {"admin"}
        assert not found[0].has_password
        await store.users.add("anna", "admin", [], "", NOW - 5)
        assert (await store.users.first_admin("admin", NOW)).name == "anna"

    async def test_the_first_admin_takes_no_name_of_another(self, store: Store) -> None:
        await store.users.add("admin", "viewer", [], "", NOW)
        with pytest.raises(Conflict, match="skep user role"):
            await store.users.first_admin("admin", NOW)

    async def test_groups_give_their_members_a_scope(self, store: Store) -> None:
        assert (await store.users.set_group("eu", ["site=berlin"], NOW)).labels == ("site=berlin",)
        await store.users.set_group("eu", ["site=köln"], NOW + 1)
        await store.users.set_group("us", ["site=ny", "team=a"], NOW)
        assert [group.name for group in await store.users.groups()] == ["eu", "us"]
        await store.users.add("anna", "viewer", ["us", "eu"], "", NOW)
        with pytest.raises(NotFound, match="mars"):
            await store.users.add("bob", "viewer", ["mars"], "", NOW)
        with pytest.raises(NotFound, match="mars"):
            await store.users.change("anna", UserChange(groups=("mars",)), NOW)
        await store.sessions.begin(session("anna"), 10)
        found = (await store.sessions.find_many([DIGEST]))[DIGEST]
        assert found.scope == Scope(("site=ny", "team=a", "site=köln"))
        with pytest.raises(Conflict, match="anna"):
            await store.users.remove_group("eu")
        changed = await store.users.change("anna", UserChange(groups=()), NOW + 2)
        assert (changed.groups, changed.changed_at) == ((), NOW + 2)
        assert (await store.sessions.find_many([DIGEST]))[DIGEST].scope == Scope()
        assert (await store.users.remove_group("eu")).name == "eu"
        with pytest.raises(NotFound):
            await store.users.remove_group("eu")
