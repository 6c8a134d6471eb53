"""The message pool. Implements `Pool` of `store/ports/pipelines/pool.py`; run by centers only.

A message leaves the table in the transaction that counts it, so that its ledger adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.pipelines.pool import NewPooled, Pooled, PoolLedger, PoolState, Settled
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.pool import pool, pool_counts

#: Characters of a stored reason.
REASON_LIMIT = 2000
#: Rows that one statement deletes or changes by id.
_CHUNK = 1000
_COLUMNS = (
    *("pipeline", "origin", "input", "body", "state", "due", "expires", "errors", "tries"),
    *("done", "stage", "reason", "put_at", "holder", "held_until", "token"),
)
_WAITING = pool.c.state == PoolState.WAITING.value
_DEAD = pool.c.state == PoolState.DEAD.value
_FREE: dict[str, Any] = {"holder": "", "held_until": 0.0}


class SqlPool:
    """Rows of `pool` and `pool_counts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, pipeline: str, new: Sequence[NewPooled], now: float) -> int:
        rows = [_row(pipeline, one, now) for one in new]

        def work(tx: Tx) -> int:
            stored = tx.dialect.insert_new(tx.connection, pool, _COLUMNS, rows)
            _count(tx, {(pipeline, "put"): stored})
            return stored

        return await self._database.write(work) if rows else 0

    async def claim(
        self, pipeline: str, holder: str, now: float, until: float, limit: int
    ) -> list[Pooled]:
        ready = _ready(pipeline, now)
        # Most of the time nothing is due: then nothing is written.
        some = sa.select(pool.c.id).where(ready).limit(1)
        if await self._database.read(lambda c: c.execute(some).first()) is None:
            return []
        return await self._database.write(partial(_claim, ready, holder, until, limit))

    async def settle(self, settled: Sequence[Settled]) -> list[int]:
        if not settled:
            return []
        return await self._database.write(lambda tx: _settle(tx, settled))

    async def release(self, holder: str) -> int:
        mine = sa.and_(pool.c.holder == holder, _WAITING)
        free = sa.update(pool).where(mine).values(**_FREE)
        return await self._database.write(lambda tx: int(tx.execute(free).rowcount))

    async def expire(self, now: float, limit: int) -> int:
        old = sa.and_(_WAITING, pool.c.expires > 0, pool.c.expires <= now, pool.c.held_until <= now)
        query = sa.select(pool.c.id).where(old).order_by(pool.c.expires).limit(limit)

        def work(tx: Tx) -> int:
            ids = list(tx.execute(query.with_for_update(skip_locked=True)).scalars())
            for some in _chunks(ids):
                reason = sa.literal("expired: ") + pool.c.reason
                values = {"state": PoolState.DEAD.value, "reason": reason, **_FREE}
                tx.execute(sa.update(pool).where(pool.c.id.in_(some)).values(**values))
            return len(ids)

        return await self._database.write(work)

    async def find(
        self, pipeline: str, state: PoolState | None, after: int, limit: int
    ) -> list[Pooled]:
        query = sa.select(pool).where(pool.c.id > after).order_by(pool.c.id).limit(limit)
        if pipeline:
            query = query.where(pool.c.pipeline == pipeline)
        if state is not None:
            query = query.where(pool.c.state == state.value)
        return await self._database.read(lambda c: [_pooled(row) for row in c.execute(query)])

    async def send_again(self, pipeline: str, ids: Sequence[int] | None, now: float) -> int:
        values = {"state": PoolState.WAITING.value, "due": now, "expires": 0.0, "errors": 0}
        change = sa.update(pool).where(_DEAD, pool.c.pipeline == pipeline)
        change = change.values(**values, token=pool.c.token + 1, **_FREE)

        def work(tx: Tx) -> int:
            if ids is None:
                return int(tx.execute(change).rowcount)
            chosen = (change.where(pool.c.id.in_(some)) for some in _chunks(ids))
            return sum(int(tx.execute(one).rowcount) for one in chosen)

        return await self._database.write(work)

    async def discard(self, pipeline: str, ids: Sequence[int] | None) -> int:
        gone = sa.delete(pool).where(pool.c.pipeline == pipeline)

        def work(tx: Tx) -> int:
            chosen = (gone.where(pool.c.id.in_(some)) for some in _chunks(ids or ()))
            every = [gone] if ids is None else chosen
            count = sum(int(tx.execute(one).rowcount) for one in every)
            _count(tx, {(pipeline, "discarded"): count})
            return count

        return await self._database.write(work)

    async def size(self, pipeline: str) -> int:
        added = sa.case((pool_counts.c.what == "put", pool_counts.c.n), else_=-pool_counts.c.n)
        query = sa.select(sa.func.sum(added)).where(pool_counts.c.pipeline == pipeline)
        return await self._database.read(lambda c: int(c.execute(query).scalar() or 0))

    async def ledger(self, pipeline: str = "") -> PoolLedger:
        states = sa.select(pool.c.state, sa.func.count()).group_by(pool.c.state)
        counts = sa.select(pool_counts.c.what, sa.func.sum(pool_counts.c.n))
        counts = counts.group_by(pool_counts.c.what)
        if pipeline:
            states = states.where(pool.c.pipeline == pipeline)
            counts = counts.where(pool_counts.c.pipeline == pipeline)
        # One statement: two would see two moments.
        both = sa.union_all(states, counts)

        def work(connection: sa.Connection) -> PoolLedger:
            return PoolLedger(**{name: int(n) for name, n in connection.execute(both)})

        return await self._database.read(work)


def _row(pipeline: str, one: NewPooled, now: float) -> tuple[Any, ...]:
    # Drivers that send columns as arrays refuse integers among floats.
    due, expires, now = float(one.due), float(one.expires), float(now)
    return (
        *(pipeline, one.origin, one.input, one.body, one.state.value, due, expires),
        *(one.errors, 0, _packed(one.done), one.stage, one.reason[:REASON_LIMIT], now),
        *("", 0.0, 0),
    )


def _packed(done: Sequence[str]) -> str:
    return msgspec.json.encode(done).decode()


def _pooled(row: Any) -> Pooled:
    done = tuple(msgspec.json.decode(row.done, type=list[str]))
    names = (field for field in Pooled.__struct_fields__ if field not in {"state", "done", "body"})
    values = {name: getattr(row, name) for name in names}
    return Pooled(**values, state=PoolState(row.state), done=done, body=bytes(row.body))


def _ready(pipeline: str, now: float) -> sa.ColumnElement[bool]:
    alive = sa.or_(pool.c.expires == 0, pool.c.expires > now)
    due = sa.and_(pool.c.due <= now, pool.c.held_until <= now)
    return sa.and_(pool.c.pipeline == pipeline, _WAITING, due, alive)


def _claim(
    ready: sa.ColumnElement[bool], holder: str, until: float, limit: int, tx: Tx
) -> list[Pooled]:
    query = sa.select(pool).where(ready).order_by(pool.c.due, pool.c.id).limit(limit)
    found = [_pooled(row) for row in tx.execute(query.with_for_update(skip_locked=True))]
    values = {"holder": holder, "held_until": until}
    for some in _chunks([one.id for one in found]):
        change = sa.update(pool).where(pool.c.id.in_(some))
        tx.execute(change.values(**values, token=pool.c.token + 1, tries=pool.c.tries + 1))
    return [msgspec.structs.replace(one, token=one.token + 1, tries=one.tries + 1) for one in found]


def _settle(tx: Tx, settled: Sequence[Settled]) -> list[int]:
    held = _held(tx, [one.id for one in settled])
    good = [one for one in settled if held.get(one.id, ("", -1))[1] == one.token]
    gone = [one.id for one in good if one.what == "done"]
    for some in _chunks(gone):
        tx.execute(sa.delete(pool).where(pool.c.id.in_(some)))
    _count(tx, Counter((held[number][0], "done") for number in gone))
    changed = [_change(one) for one in good if one.what != "done"]
    if changed:
        names: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in _CHANGED}
        tx.execute(sa.update(pool).where(pool.c.id == sa.bindparam("row")).values(names), changed)
    valid = {one.id for one in good}
    return [one.id for one in settled if one.id not in valid]


_CHANGED = (
    *("state", "due", "expires", "errors", "done", "stage", "reason"),
    *("holder", "held_until", "token"),
)


def _change(one: Settled) -> dict[str, Any]:
    """The token rises, so that a repeated call finds nothing to change."""
    state = PoolState.DEAD if one.what == "dead" else PoolState.WAITING
    values = {
        "state": state.value,
        "due": one.due,
        "expires": one.expires,
        "errors": one.errors,
        "done": _packed(one.done),
        "stage": one.stage,
        "reason": one.reason[:REASON_LIMIT],
        "token": one.token + 1,
        **_FREE,
    }
    return {"row": one.id, **{f"new_{name}": values[name] for name in _CHANGED}}


def _held(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Id -> pipeline and current token of waiting messages, locked in the order of ids."""
    found: dict[int, tuple[str, int]] = {}
    for some in _chunks(sorted(ids)):
        query = sa.select(pool.c.id, pool.c.pipeline, pool.c.token)
        query = query.where(pool.c.id.in_(some), _WAITING).order_by(pool.c.id).with_for_update()
        found |= {row.id: (row.pipeline, row.token) for row in tx.execute(query)}
    return found


def _count(tx: Tx, counts: dict[tuple[str, str], int]) -> None:
    rows = [(*key, count) for key, count in sorted(counts.items()) if count]
    if rows:
        tx.dialect.add_up(tx.connection, pool_counts, ("pipeline", "what", "n"), rows)


def _chunks(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[place : place + _CHUNK] for place in range(0, len(ids), _CHUNK))
