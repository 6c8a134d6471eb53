"""Sessions and login links. Implements `Sessions` and `LoginLinks`; run by centers only.

What the user of a session may do is read with the session, so that a lowered role and a
disabled user count from the next look-up on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from skep.errors import NotFound, Unauthorized
from skep.model.people.scope import Scope
from skep.model.people.user import NAMED_BY, FoundSession, NewSession, SessionView, session_id
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.people.users import labels_of, user_of
from skep.store.sql.schema.people import login_links, user_groups, user_sessions, users

_COLUMNS = (
    *("digest", "user_name", "created_at", "seen_at", "expires_at"),
    *("address", "client", "method"),
)
_DIGEST = 32
_NEW = (
    "the login link is not valid: it was used, has expired, or its user is disabled; make a new"
    " one with `skep user link NAME`"
)


class SqlSessions:
    """Rows of `user_sessions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, session: NewSession, limit: int) -> None:
        def work(tx: Tx) -> None:
            _check_user(tx, session.user)
            now = session.created_at
            tx.execute(sa.update(users).where(users.c.name == session.user).values(login_at=now))
            times = (now, now, session.expires_at)
            origin = (session.address, session.client, session.method)
            row = (session.digest, session.user, *times, *origin)
            tx.dialect.insert_new(tx.connection, user_sessions, _COLUMNS, [row])
            _end_oldest(tx, session.user, limit)

        await self._database.write(work)

    async def find_many(self, digests: Sequence[bytes]) -> dict[bytes, FoundSession]:
        joined = user_sessions.join(users, users.c.name == user_sessions.c.user_name)
        query = sa.select(
            users,
            user_sessions.c.digest,
            user_sessions.c.created_at.label("begun_at"),
            user_sessions.c.seen_at,
            user_sessions.c.expires_at,
        ).select_from(joined)
        query = query.where(user_sessions.c.digest.in_(list(digests)))

        def work(connection: sa.Connection) -> dict[bytes, FoundSession]:
            rows = connection.execute(query).all()
            scopes = _scopes(connection, rows)
            return {bytes(row.digest): _found(row, scopes) for row in rows}

        return await self._database.read(work)

    async def touch(self, uses: Mapping[bytes, float]) -> None:
        def work(tx: Tx) -> None:
            for digest, at in sorted(uses.items()):
                older = (user_sessions.c.digest == digest, user_sessions.c.seen_at < at)
                tx.execute(sa.update(user_sessions).where(*older).values(seen_at=at))

        if uses:
            await self._database.write(work)

    async def all(self, user: str = "", limit: int = 1000, after: str = "") -> list[SessionView]:
        query = sa.select(user_sessions)
        if user:
            query = query.where(user_sessions.c.user_name == user)
        newest = user_sessions.c.created_at.desc(), user_sessions.c.digest

        def work(connection: sa.Connection) -> list[SessionView]:
            rest = query.where(_later(connection, after)) if after else query
            rows = connection.execute(rest.order_by(*newest).limit(limit))
            return [session_in(row) for row in rows]

        return await self._database.read(work)

    async def end(self, digest: bytes) -> bool:
        gone = sa.delete(user_sessions).where(user_sessions.c.digest == digest)
        return bool(await self._database.write(lambda tx: tx.execute(gone).rowcount))

    async def end_one(self, session: str, user: str = "") -> SessionView:
        first, last = _range(session)
        named = user_sessions.c.digest.between(first, last)
        which = sa.and_(named, user_sessions.c.user_name == user) if user else named

        def work(tx: Tx) -> SessionView:
            row = tx.execute(sa.select(user_sessions).where(which)).first()
            if row is None:
                raise NotFound(f"there is no session {session[:40]!r}")
            tx.execute(sa.delete(user_sessions).where(user_sessions.c.digest == row.digest))
            return session_in(row)

        return await self._database.write(work)

    async def end_all(self, user: str) -> int:
        gone = sa.delete(user_sessions).where(user_sessions.c.user_name == user)
        return int(await self._database.write(lambda tx: tx.execute(gone).rowcount))

    async def forget(self, now: float, idle: float) -> int:
        over = sa.or_(user_sessions.c.expires_at <= now, user_sessions.c.seen_at <= idle)

        def work(tx: Tx) -> int:
            tx.execute(sa.delete(login_links).where(login_links.c.expires_at <= now))
            return int(tx.execute(sa.delete(user_sessions).where(over)).rowcount)

        return await self._database.write(work)


class SqlLoginLinks:
    """Rows of `login_links`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, digest: bytes, user: str, now: float, expires_at: float) -> None:
        row = (digest, user, now, expires_at)
        columns = ("digest", "user_name", "created_at", "expires_at")

        def work(tx: Tx) -> None:
            _check_user(tx, user)
            tx.dialect.insert_new(tx.connection, login_links, columns, [row])

        await self._database.write(work)

    async def use(self, digest: bytes, now: float) -> str:
        mine = login_links.c.digest == digest

        def work(tx: Tx) -> str:
            row = tx.execute(sa.select(login_links).where(mine).with_for_update()).first()
            if row is None or row.used_at is not None or row.expires_at <= now:
                raise Unauthorized(_NEW)
            try:
                _check_user(tx, row.user_name)
            except NotFound:
                raise Unauthorized(_NEW) from None
            tx.execute(sa.update(login_links).where(mine).values(used_at=now))
            return str(row.user_name)

        return await self._database.write(work)


def _check_user(tx: Tx, name: str) -> None:
    """Raises NotFound. Locks the row: a user who is being disabled must not get a session."""
    query = sa.select(users.c.disabled).where(users.c.name == name).with_for_update()
    disabled = tx.execute(query).scalar()
    if disabled is None or disabled:
        raise NotFound(f"there is no enabled user {name[:64]!r}; `skep user ls` lists them")


def _end_oldest(tx: Tx, user: str, limit: int) -> None:
    mine = sa.select(user_sessions.c.digest).where(user_sessions.c.user_name == user)
    newest = mine.order_by(user_sessions.c.created_at.desc(), user_sessions.c.digest)
    old = [row.digest for row in tx.execute(newest.offset(limit).limit(1000))]
    if old:
        tx.execute(sa.delete(user_sessions).where(user_sessions.c.digest.in_(old)))


def _scopes(connection: sa.Connection, rows: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """The terms of the groups that these users are in."""
    names = {name for row in rows for name in user_of(row).groups}
    if not names:
        return {}
    query = sa.select(user_groups).where(user_groups.c.name.in_(sorted(names)))
    return {row.name: labels_of(row) for row in connection.execute(query)}


def _found(row: Any, scopes: Mapping[str, tuple[str, ...]]) -> FoundSession:
    user = user_of(row)
    labels = tuple(dict.fromkeys(term for name in user.groups for term in scopes.get(name, ())))
    # A user whose groups are all gone sees nothing: no label has an empty name.
    scope = Scope(labels or ("=",)) if user.groups else Scope()
    return FoundSession(
        user.name,
        user.role,
        user.disabled,
        scope,
        row.begun_at,
        row.seen_at,
        row.expires_at,
    )


def _later(connection: sa.Connection, session: str) -> sa.ColumnElement[bool]:
    """Sessions after this one, newest first; raises NotFound."""
    first, last = _range(session)
    query = sa.select(user_sessions.c.created_at, user_sessions.c.digest)
    row = connection.execute(query.where(user_sessions.c.digest.between(first, last))).first()
    if row is None:
        raise NotFound(f"there is no session {session[:40]!r}; list from the beginning")
    same = sa.and_(
        user_sessions.c.created_at == row.created_at, user_sessions.c.digest > row.digest
    )
    return sa.or_(user_sessions.c.created_at < row.created_at, same)


def _range(session: str) -> tuple[bytes, bytes]:
    """The range of digests that start with the id of a session."""
    try:
        first = bytes.fromhex(session)
    except ValueError:
        first = b""
    if len(first) != NAMED_BY:
        raise NotFound(f"{session[:40]!r} is not a valid session id")
    rest = _DIGEST - NAMED_BY
    return first + bytes(rest), first + b"\xff" * rest


def session_in(row: Any) -> SessionView:
    """A row as admins see it."""
    return SessionView(
        session_id(bytes(row.digest)),
        row.user_name,
        row.created_at,
        row.seen_at,
        row.expires_at,
        row.address,
        row.client,
        row.method,
    )
