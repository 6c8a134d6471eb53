"""Changes of log pieces, each inside one transaction. Run by centers only.

Locks are taken in one order: counter, sources, pieces, sums. Only the transaction that holds the
counter's row adds or replaces, so a source's progress needs no lock of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from skep.store.ports.logs import NewPiece, SourceProgress
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.logs.piece_rows import COLUMNS, digest_of, row_of, stored_bytes
from skep.store.sql.schema.logs import log_bodies, log_counter, log_pieces, log_sources, log_sums

_COUNTER = 1
_ADVANCE = (
    sa.update(log_sources)
    .where(log_sources.c.source == sa.bindparam("of"))
    .values({name: sa.bindparam(f"new_{name}") for name in ("token", "next", "time", "at")})
)

_ARRIVED = [log_pieces.c.first_arrived, log_pieces.c.last_arrived]

Numbered = tuple[int, NewPiece, tuple[int, int]]


def progress_of(connection: sa.Connection, digests: Sequence[bytes]) -> dict[bytes, SourceProgress]:
    """Without sources that are not known."""
    query = sa.select(log_sources).where(log_sources.c.source.in_(list(digests)))
    return {
        bytes(row.source): SourceProgress(int(row.token), int(row.next), float(row.time))
        for row in connection.execute(query)
    }


def add_pieces(tx: Tx, pieces: Sequence[NewPiece], now: float) -> list[SourceProgress | None]:
    """See `LogPieces.add`."""
    next_id = reserve(tx, len(pieces))
    digests = [digest_of(piece.source) for piece in pieces]
    known = progress_of(tx.connection, digests)
    taken: list[Numbered] = []
    answers: list[SourceProgress | None] = []
    for number, (digest, piece) in enumerate(zip(digests, pieces, strict=True), next_id):
        before = known.get(digest, SourceProgress())
        refused = (piece.token, piece.first) < (before.token, before.next)
        answers.append(before if refused else None)
        if not refused:
            taken.append((number, piece, (number, number)))
    _advance(tx, [piece for _, piece, _ in taken], known, now)
    _insert(tx, taken, now)
    return answers


def reserve(tx: Tx, count: int) -> int:
    """The first of `count` new ids. Locks the counter until the commit."""
    mine = log_counter.c.no == _COUNTER
    change = sa.update(log_counter).where(mine).values(last=log_counter.c.last + count)
    if not tx.execute(change).rowcount:
        tx.dialect.insert_new(tx.connection, log_counter, ("no", "last"), [(_COUNTER, 0)])
        tx.execute(change)
    last = tx.execute(sa.select(log_counter.c.last).where(mine)).scalar()
    return int(last or 0) - count + 1


def _advance(
    tx: Tx, pieces: Sequence[NewPiece], known: dict[bytes, SourceProgress], now: float
) -> None:
    new: list[tuple[Any, ...]] = []
    changed: list[dict[str, object]] = []
    for piece in pieces:
        digest = digest_of(piece.source)
        values = {"token": piece.token, "next": piece.next, "time": piece.latest, "at": now}
        if digest in known:
            changed.append({"of": digest, **{f"new_{name}": v for name, v in values.items()}})
        else:
            new.append((digest, *values.values()))
    columns = ("source", "token", "next", "time", "at")
    tx.dialect.insert_many(tx.connection, log_sources, columns, new)
    if changed:
        tx.execute(_ADVANCE, changed)


def _insert(tx: Tx, pieces: Sequence[Numbered], now: float) -> None:
    rows = [row_of(number, piece, arrived, now) for number, piece, arrived in pieces]
    tx.dialect.insert_many(tx.connection, log_pieces, COLUMNS, rows)
    bodies: list[tuple[Any, ...]] = [(number, piece.body) for number, piece, _ in pieces]
    tx.dialect.insert_many(tx.connection, log_bodies, ("id", "body"), bodies)
    _sum(tx, [(piece.source.agent, 1, stored_bytes(piece)) for _, piece, _ in pieces])


def _sum(tx: Tx, changes: Iterable[tuple[str, int, int]]) -> None:
    """(agent, pieces, bytes) that are added."""
    sums: Counter[tuple[str, str]] = Counter()
    for agent, pieces, size in changes:
        sums[agent, "pieces"] += pieces
        sums[agent, "bytes"] += size
    rows: list[tuple[Any, ...]] = [(*key, n) for key, n in sorted(sums.items())]
    if rows:
        tx.dialect.add_up(tx.connection, log_sums, ("agent", "name", "n"), rows)


def replace_pieces(tx: Tx, ids: Sequence[int], piece: NewPiece, now: float) -> bool:
    """See `LogPieces.replace`."""
    number = reserve(tx, 1)
    mine = sa.and_(in_list(log_pieces.c.id, ids), log_pieces.c.replaced.is_(None))
    parts = tx.execute(sa.select(*_ARRIVED).where(mine)).all()
    if len(parts) < len(ids):
        return False
    first = min(int(part.first_arrived) for part in parts)
    arrived = first, max(int(part.last_arrived) for part in parts)
    _insert(tx, [(number, piece, arrived)], now)
    tx.execute(sa.update(log_pieces).where(mine).values(replaced=number, replaced_at=now))
    return True


def delete_pieces(tx: Tx, where: Sequence[sa.ColumnElement[bool]], limit: int) -> list[int]:
    """Delete up to `limit` pieces, lowest time first; the bytes of each."""
    columns = log_pieces.c.id, log_pieces.c.agent, log_pieces.c.stored
    query = sa.select(*columns).where(*where).order_by(log_pieces.c.latest, log_pieces.c.id)
    return _delete(tx, tx.execute(query.limit(limit)).all())


def delete_surplus(tx: Tx, agent: str | None, surplus: int, limit: int) -> int:
    """Delete pieces, lowest time first, until `surplus` bytes are freed; the bytes freed."""
    columns = log_pieces.c.id, log_pieces.c.agent, log_pieces.c.stored
    query = sa.select(*columns).order_by(log_pieces.c.latest, log_pieces.c.id).limit(limit)
    if agent is not None:
        query = query.where(log_pieces.c.agent == agent)
    rows: list[Any] = []
    freed = 0
    for row in tx.execute(query):
        if freed >= surplus:
            break
        rows.append(row)
        freed += int(row.stored)
    _delete(tx, rows)
    return freed


def _delete(tx: Tx, rows: Sequence[Any]) -> list[int]:
    if rows:
        ids = id_list(row.id for row in rows)
        tx.sql(f"DELETE FROM log_pieces WHERE id IN ({ids})")  # noqa: S608 - integers only
        tx.sql(f"DELETE FROM log_bodies WHERE id IN ({ids})")  # noqa: S608 - integers only
        _sum(tx, [(row.agent, -1, -int(row.stored)) for row in rows])
    return [int(row.stored) for row in rows]


def forget_sources(tx: Tx, before: float, limit: int) -> None:
    """Delete the progress of sources that have stored nothing since."""
    old = sa.select(log_sources.c.source).where(log_sources.c.at < before)
    digests = list(tx.execute(old.order_by(log_sources.c.at).limit(limit)).scalars())
    if digests:
        tx.execute(sa.delete(log_sources).where(log_sources.c.source.in_(digests)))
