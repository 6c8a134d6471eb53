"""Tokens, as digests. Implements `Tokens`; run by centers only.

A one-time token is used up in the transaction that stores the new credential, so two centers
cannot both accept it, and a caller that lost the answer can call again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict, Forbidden, NotFound, Unauthorized
from skep.model.fleet.token import NAMED_BY, FoundToken, Grant, TokenView, token_id
from skep.model.people.scope import Scope
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.agents import agents, tokens

JOIN, AGENT, DRIVER = "join", "agent", "driver"
_COLUMNS = (
    *("digest", "role", "subject", "created_at", "revoked"),
    *("note", "expires_at", "grant_", "scope"),
)
_grant = msgspec.msgpack.Decoder(Grant)
_terms = msgspec.msgpack.Decoder(tuple[str, ...])
_DIGEST = 32


class SqlTokens:
    """Rows of `tokens`: digests only, never a token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self,
        digest: bytes,
        role: str,
        subject: str,
        now: float,
        note: str = "",
        expires_at: float | None = None,
        grant: Grant | None = None,
        scope: Scope | None = None,
    ) -> None:
        packed = msgspec.msgpack.encode(grant or Grant())
        terms = msgspec.msgpack.encode(scope.labels) if scope else None
        row = (digest, role, subject, now, 0, note, expires_at, packed, terms)
        await self._database.write(lambda tx: _insert(tx, row))

    async def used(self, uses: Mapping[bytes, float]) -> None:
        def work(tx: Tx) -> None:
            for digest, at in sorted(uses.items()):
                change = sa.update(tokens).where(tokens.c.digest == digest)
                tx.execute(change.values(last_used_at=at))

        if uses:
            await self._database.write(work)

    async def find(self, digest: bytes) -> FoundToken | None:
        return (await self.find_many([digest])).get(digest)

    async def find_many(self, digests: Sequence[bytes]) -> dict[bytes, FoundToken]:
        # Finds used tokens too: their user may have lost the answer; others get the reason.
        used = sa.and_(tokens.c.role == JOIN, tokens.c.used_by.is_not(None))
        good = sa.or_(tokens.c.revoked == 0, used)
        query = sa.select(tokens).where(tokens.c.digest.in_(list(digests)), good)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return {bytes(row.digest): _found(row) for row in rows}

    async def revoked(self, digest: bytes) -> bool:
        query = sa.select(tokens.c.revoked).where(tokens.c.digest == digest)
        return bool(await self._database.read(lambda c: c.execute(query).scalar()))

    async def join(
        self, digest: bytes, agent: str, credential: bytes, now: float, *, dry: bool = False
    ) -> Grant:
        def work(tx: Tx) -> Grant:
            row = tx.execute(_by(digest).with_for_update()).first()
            if row is not None and row.used_by:
                return _joined_before(tx, row, agent, credential)
            grant = _check(tx, row, agent, now)
            if not dry:
                _use(tx, row, agent, credential, now)
            return grant

        return await self._database.write(work)

    async def all(self, limit: int = 1000, after: str = "") -> list[TokenView]:
        query = sa.select(tokens).where(tokens.c.role != DRIVER)
        query = query.order_by(tokens.c.created_at.desc(), tokens.c.digest).limit(limit)

        def work(connection: sa.Connection) -> list[TokenView]:
            rest = query.where(_later_in_list(connection, after)) if after else query
            return [token_in(row) for row in connection.execute(rest)]

        return await self._database.read(work)

    async def revoke(self, subject: str) -> int:
        named = sa.and_(tokens.c.subject == subject, tokens.c.role != DRIVER)
        return await self._database.write(lambda tx: _revoke(tx, named))

    async def revoke_driver(self, run: str, digest: bytes | None = None) -> int:
        theirs = sa.and_(tokens.c.subject == run, tokens.c.role == DRIVER)
        which = theirs if digest is None else sa.and_(theirs, tokens.c.digest == digest)
        return await self._database.write(lambda tx: _revoke(tx, which))

    async def revoke_one(self, token: str) -> TokenView:
        first, last = _range(token)
        named = tokens.c.digest.between(first, last)

        def work(tx: Tx) -> TokenView:
            _revoke(tx, named)
            row = tx.execute(sa.select(tokens).where(named)).first()
            if row is None:
                raise NotFound(f"there is no token {token[:40]!r}; `skep token ls` lists them")
            return token_in(row)

        return await self._database.write(work)

    async def forget(self, before: float) -> int:
        over = sa.and_(tokens.c.revoked == 1, tokens.c.created_at < before)
        # A revoked token of the center's own folder is kept: deleted, it would be valid again.
        gone = sa.delete(tokens).where(over, tokens.c.role.in_((JOIN, DRIVER)))
        return await self._database.write(lambda tx: int(tx.execute(gone).rowcount))


def _later_in_list(connection: sa.Connection, token: str) -> sa.ColumnElement[bool]:
    """Tokens after this one, newest first; raises NotFound."""
    first, last = _range(token)
    query = sa.select(tokens.c.created_at, tokens.c.digest)
    row = connection.execute(query.where(tokens.c.digest.between(first, last))).first()
    if row is None:
        raise NotFound(f"there is no token {token[:40]!r}; list from the beginning")
    same = sa.and_(tokens.c.created_at == row.created_at, tokens.c.digest > row.digest)
    return sa.or_(tokens.c.created_at < row.created_at, same)


def _by(digest: bytes) -> sa.Select[Any]:
    return sa.select(tokens).where(tokens.c.digest == digest)


def _insert(tx: Tx, row: tuple[Any, ...]) -> None:
    # `insert_new` needs the length of values: columns with None are left out.
    pairs = [(c, v) for c, v in zip(_COLUMNS, row, strict=True) if v is not None]
    columns, values = zip(*pairs, strict=True)
    tx.dialect.insert_new(tx.connection, tokens, columns, [values])


def _revoke(tx: Tx, which: sa.ColumnElement[bool]) -> int:
    change = sa.update(tokens).where(which, tokens.c.revoked == 0).values(revoked=1)
    return int(tx.execute(change).rowcount)


def _check(tx: Tx, row: Any, agent: str, now: float) -> Grant:
    if row is None or row.role != JOIN or row.revoked:
        raise Unauthorized("the token is not a join token, or it was revoked")
    if row.expires_at is not None and row.expires_at <= now:
        raise Unauthorized("the token has expired; make a new one with `skep agent token`")
    if row.subject and row.subject != agent:
        raise Forbidden(f"this token is for agent {row.subject}, not for {agent}")
    if not row.subject and _is_taken(tx, agent):
        raise Conflict(
            f"there is an agent {agent} already; to join this machine as that agent, make a token"
            f" with `skep agent token --agent {agent}`"
        )
    return _granted(row)


def _is_taken(tx: Tx, agent: str) -> bool:
    known = sa.select(agents.c.id).where(agents.c.id == agent)
    mine = sa.select(tokens.c.role).where(tokens.c.subject == agent, tokens.c.role == AGENT)
    return tx.execute(known).first() is not None or tx.execute(mine).first() is not None


def _use(tx: Tx, row: Any, agent: str, credential: bytes, now: float) -> None:
    spent = sa.update(tokens).where(tokens.c.digest == row.digest)
    tx.execute(spent.values(revoked=1, used_by=agent, used_at=now))
    # Earlier credentials of this agent are no longer valid.
    _revoke(tx, sa.and_(tokens.c.subject == agent, tokens.c.role == AGENT))
    _insert(tx, (credential, AGENT, agent, now, 0, row.note or "", None, row.grant_, None))


def _joined_before(tx: Tx, row: Any, agent: str, credential: bytes) -> Grant:
    """The same machine calls again: its answer was lost. Others are refused."""
    mine = tx.execute(_by(credential)).first()
    if row.used_by != agent or mine is None or mine.subject != agent or mine.revoked:
        raise Conflict(f"the token was used already, by agent {row.used_by}; make a new one")
    return _granted(row)


def _range(token: str) -> tuple[bytes, bytes]:
    """The range of digests that start with the id of a token."""
    try:
        first = bytes.fromhex(token)
    except ValueError:
        first = b""
    if len(first) != NAMED_BY:
        raise NotFound(f"{token[:40]!r} is not a valid token id; `skep token ls` lists them")
    rest = _DIGEST - NAMED_BY
    return first + bytes(rest), first + b"\xff" * rest


def _found(row: Any) -> FoundToken:
    scope = Scope(_scoped(row))
    return FoundToken(row.role, row.subject, row.expires_at, _granted(row), row.note or "", scope)


def _scoped(row: Any) -> tuple[str, ...]:
    return _terms.decode(row.scope) if row.scope else ()


def _granted(row: Any) -> Grant:
    return _grant.decode(row.grant_) if row.grant_ else Grant()


def token_in(row: Any) -> TokenView:
    """A token from its row."""
    return TokenView(
        token_id(bytes(row.digest)),
        row.role,
        row.subject,
        row.note or "",
        row.created_at,
        row.expires_at,
        bool(row.revoked),
        _granted(row),
        row.used_by or "",
        row.used_at,
        _scoped(row),
        row.last_used_at,
    )
