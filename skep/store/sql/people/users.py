"""Users and groups. Implements `Users`; run by centers only.

A change that could leave no enabled admin first locks the rows of all admins, in one order, so
that two centers cannot each lower one of the last two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict, NotFound
from skep.model.people.user import User, UserChange, UserGroup
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.people import login_links, user_groups, user_sessions, users
from skep.store.sql.schema.views import views

ADMIN = "admin"
_names = msgspec.msgpack.Decoder(tuple[str, ...])


class SqlUsers:
    """Rows of `users` and `user_groups`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self, name: str, role: str, groups: Sequence[str], password: str, now: float
    ) -> User:
        def work(tx: Tx) -> User:
            _check_groups(tx, groups)
            if not _insert(tx, name, role, groups, password, now):
                raise Conflict(f"there is a user {name} already; choose another name")
            return _get(tx, name)

        return await self._database.write(work)

    async def first_admin(self, name: str, now: float) -> User:
        def work(tx: Tx) -> User:
            admins = _enabled_admins(tx)
            if admins:
                return user_of(min(admins, key=lambda row: (row.created_at, row.name)))
            _insert(tx, name, ADMIN, (), "", now)
            user = _get(tx, name)  # another center may have made it at the same moment
            if user.role != ADMIN or user.disabled:
                raise Conflict(
                    f"there is no enabled admin, and user {name} is disabled or has another role;"
                    f" make an admin with `skep user role {name} admin`"
                )
            return user

        return await self._database.write(work)

    async def all(self, limit: int = 1000, after: str = "") -> list[User]:
        query = sa.select(users).where(users.c.name > after).order_by(users.c.name).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [user_of(row) for row in rows]

    async def get(self, name: str) -> User:
        found = await self.login(name)
        if found is None:
            raise _unknown(name)
        return found[0]

    async def login(self, name: str) -> tuple[User, str] | None:
        query = sa.select(users).where(users.c.name == name)
        row = await self._database.read(lambda c: c.execute(query).first())
        return None if row is None else (user_of(row), row.password)

    async def change(self, name: str, change: UserChange, now: float) -> User:
        def work(tx: Tx) -> User:
            admins = _enabled_admins(tx)
            row = _locked(tx, name)
            if change.disabled or change.role not in {None, ADMIN}:
                _keep_an_admin(admins, name)
            _check_groups(tx, change.groups or ())
            tx.execute(_update(name).values(changed_at=now, **_values(change)))
            if change.disabled and not row.disabled:
                _end_all(tx, name)
            return _get(tx, name)

        return await self._database.write(work)

    async def set_password(
        self, name: str, password: str, now: float, keep: bytes | None = None
    ) -> int:
        def work(tx: Tx) -> int:
            _locked(tx, name)
            tx.execute(_update(name).values(password=password, changed_at=now))
            return _end_all(tx, name, keep)

        return await self._database.write(work)

    async def remove(self, name: str) -> User:
        def work(tx: Tx) -> User:
            admins = _enabled_admins(tx)
            row = _locked(tx, name)
            _keep_an_admin(admins, name)
            tx.execute(sa.delete(users).where(users.c.name == name))
            # Another person may get the name later; what the user shared stays for the others.
            tx.execute(sa.delete(views).where(views.c.owner == name, views.c.shared == 0))
            _end_all(tx, name)
            return user_of(row)

        return await self._database.write(work)

    async def set_group(self, name: str, labels: Sequence[str], now: float) -> UserGroup:
        packed = msgspec.msgpack.encode(labels)
        row = (name, packed, now)

        def work(tx: Tx) -> UserGroup:
            columns = ("name", "labels", "created_at")
            if not tx.dialect.insert_new(tx.connection, user_groups, columns, [row]):
                same = user_groups.c.name == name
                tx.execute(sa.update(user_groups).where(same).values(labels=packed))
            return _group(tx.execute(_by_group(name)).one())

        return await self._database.write(work)

    async def groups(self) -> list[UserGroup]:
        query = sa.select(user_groups).order_by(user_groups.c.name)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [_group(row) for row in rows]

    async def remove_group(self, name: str) -> UserGroup:
        def work(tx: Tx) -> UserGroup:
            row = tx.execute(_by_group(name).with_for_update()).first()
            if row is None:
                raise NotFound(f"there is no group {name!r}; `skep group ls` lists them")
            if members := _members(tx, name):
                raise Conflict(
                    f"group {name} has members ({', '.join(members[:5])}), who would see everything"
                    " without it; give them other groups first"
                )
            tx.execute(sa.delete(user_groups).where(user_groups.c.name == name))
            return _group(row)

        return await self._database.write(work)


def user_of(row: Any) -> User:
    return User(
        row.name,
        row.role,
        _names.decode(row.member_of),
        row.created_at,
        row.changed_at,
        bool(row.disabled),
        bool(row.password),
        row.login_at,
    )


def labels_of(row: Any) -> tuple[str, ...]:
    """The terms of a group."""
    return _names.decode(row.labels)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no user {name[:64]!r}; `skep user ls` lists them")


def _insert(tx: Tx, name: str, role: str, groups: Sequence[str], password: str, now: float) -> bool:
    columns = ("name", "role", "password", "disabled", "member_of", "created_at", "changed_at")
    row = (name, role, password, 0, msgspec.msgpack.encode(groups), now, now)
    return bool(tx.dialect.insert_new(tx.connection, users, columns, [row]))


def _get(tx: Tx, name: str) -> User:
    return user_of(tx.execute(sa.select(users).where(users.c.name == name)).one())


def _locked(tx: Tx, name: str) -> Any:
    row = tx.execute(sa.select(users).where(users.c.name == name).with_for_update()).first()
    if row is None:
        raise _unknown(name)
    return row


def _enabled_admins(tx: Tx) -> list[Any]:
    """Locked, in the order of their names."""
    admins = sa.select(users).where(users.c.role == ADMIN, users.c.disabled == 0)
    return list(tx.execute(admins.order_by(users.c.name).with_for_update()))


def _keep_an_admin(admins: Sequence[Any], name: str) -> None:
    if [row.name for row in admins] == [name]:
        raise Conflict(f"{name} is the last admin; make another user an admin first")


def _update(name: str) -> sa.Update:
    return sa.update(users).where(users.c.name == name)


def _values(change: UserChange) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if change.role is not None:
        values["role"] = change.role
    if change.groups is not None:
        values["member_of"] = msgspec.msgpack.encode(change.groups)
    if change.disabled is not None:
        values["disabled"] = int(change.disabled)
    return values


def _end_all(tx: Tx, name: str, keep: bytes | None = None) -> int:
    """End the sessions and login links of a user; returns how many sessions ended."""
    tx.execute(sa.delete(login_links).where(login_links.c.user_name == name))
    theirs = sa.delete(user_sessions).where(user_sessions.c.user_name == name)
    if keep is not None:
        theirs = theirs.where(user_sessions.c.digest != keep)
    return int(tx.execute(theirs).rowcount)


def _by_group(name: str) -> sa.Select[Any]:
    return sa.select(user_groups).where(user_groups.c.name == name)


def _check_groups(tx: Tx, groups: Sequence[str]) -> None:
    """Locks the groups: one that is being removed must not get a member."""
    for name in sorted(groups):
        if tx.execute(_by_group(name).with_for_update()).first() is None:
            raise NotFound(f"there is no group {name[:64]!r}; `skep group ls` lists them")


def _members(tx: Tx, group: str) -> list[str]:
    rows = tx.execute(sa.select(users.c.name, users.c.member_of).order_by(users.c.name))
    return [row.name for row in rows if group in _names.decode(row.member_of)]


def _group(row: Any) -> UserGroup:
    return UserGroup(row.name, labels_of(row), row.created_at)
