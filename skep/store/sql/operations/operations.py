"""Bulk operations under a lease. Implements `Operations` of `store/ports/operations.py`.

Run by centers only. The set of an operation is stored in parts; a part is deleted in the
transaction that counts what became of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from skep.errors import Conflict
from skep.model.filter.checked import CheckedFilter
from skep.model.operations import (
    FilePiece,
    Key,
    NewOperation,
    Operation,
    OperationFile,
    OperationLease,
    OperationPart,
    OperationResult,
    OperationState,
)
from skep.store.ports.operations import ActedPart, RequestAct
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.operations.files import (
    drop_file,
    file_of,
    forget_files,
    next_piece,
    settle_with_piece,
)
from skep.store.sql.operations.request_acts import act_on_part
from skep.store.sql.operations.rows import (
    OPEN,
    RELEASED,
    change,
    drop_parts,
    hold,
    keys_of,
    operation_of,
    packed,
    read,
    settle_part,
)
from skep.store.sql.operations.targets import newest_key
from skep.store.sql.schema.operations import operation_parts, operations

ERROR_LIMIT = 2000


class SqlOperations:
    """Rows of `operations` and `operation_parts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: NewOperation, limit: int, now: float) -> Operation:
        return await self._database.write(lambda tx: _add(tx, new, limit, now))

    async def get(self, number: int) -> Operation:
        return await self._database.read(lambda connection: read(connection, number))

    async def recent(
        self, limit: int, before: int | None = None, *, only_open: bool = False
    ) -> list[Operation]:
        query = sa.select(operations).order_by(operations.c.no.desc()).limit(limit)
        if before is not None:
            query = query.where(operations.c.no < before)
        if only_open:
            query = query.where(OPEN)
        return await self._database.read(lambda c: [operation_of(row) for row in c.execute(query)])

    async def cancel(self, number: int, now: float) -> Operation:
        def work(tx: Tx) -> Operation:
            found = read(tx.connection, number, lock=True)
            if not found.is_open:
                return found
            return _ended(tx, found, OperationState.CANCELLED, "", now)

        return await self._database.write(work)

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[Operation]:
        some = sa.select(operations.c.no).where(OPEN).limit(1)
        # Most of the time there are none: then nothing is written.
        if await self._database.read(lambda c: c.execute(some).first()) is None:
            return []
        return await self._database.write(partial(_claim, holder, now, until, limit))

    async def release(self, holder: str) -> None:
        mine = sa.and_(operations.c.holder == holder, OPEN)
        release = sa.update(operations).where(mine).values(**RELEASED)
        await self._database.write(lambda tx: tx.execute(release) and None)

    async def forget(self, before: float, limit: int) -> int:
        old = sa.and_(sa.not_(OPEN), operations.c.ended_at < before)
        query = sa.select(operations.c.no).where(old).order_by(operations.c.no).limit(limit)

        def work(tx: Tx) -> int:
            numbers = list(tx.execute(query).scalars())
            for number in numbers:
                drop_file(tx, number)
            gone = sa.delete(operations).where(operations.c.no.in_(numbers))
            return int(tx.execute(gone).rowcount) if numbers else 0

        return await self._database.write(work)

    async def collect(
        self,
        lease: OperationLease,
        parts: Sequence[Sequence[Key]],
        position: str,
        now: float,
        *,
        last: bool,
    ) -> Operation:
        def work(tx: Tx) -> Operation:
            held = hold(tx, lease)
            _add_parts(tx, lease.operation, parts)
            state = OperationState.WORKING if last else OperationState.COLLECTING
            matched = held.matched + sum(map(len, parts))
            values = {"state": state.value, "matched": matched, "position": position}
            return change(tx, lease.operation, **values, started_at=held.started_at or now)

        return await self._database.write(work)

    async def part(self, lease: OperationLease) -> OperationPart | None:
        c = operation_parts.c
        query = sa.select(operation_parts).where(c.operation == lease.operation)
        query = query.order_by(c.no).limit(1)
        row = await self._database.read(lambda connection: connection.execute(query).first())
        return None if row is None else OperationPart(row.no, keys_of(row))

    async def settle(
        self,
        lease: OperationLease,
        part: int,
        results: Sequence[OperationResult],
        left: Sequence[Key] = (),
    ) -> Operation:
        return await self._database.write(
            lambda tx: settle_part(tx, hold(tx, lease), part, results, left)
        )

    async def act(
        self,
        lease: OperationLease,
        part: OperationPart,
        act: RequestAct,
        wanted: CheckedFilter,
        now: float,
        notes: Sequence[str] = (),
    ) -> ActedPart:
        return await self._database.write(
            lambda tx: act_on_part(tx, lease, part, act, wanted, now, notes)
        )

    async def export(
        self,
        lease: OperationLease,
        part: int,
        results: Sequence[OperationResult],
        piece: FilePiece | None,
    ) -> Operation:
        return await self._database.write(
            lambda tx: settle_with_piece(tx, lease, part, results, piece)
        )

    async def file(self, number: int) -> OperationFile:
        return await self._database.read(lambda connection: file_of(connection, number))

    async def file_piece(self, number: int, after: int) -> tuple[int, bytes] | None:
        return await self._database.read(lambda connection: next_piece(connection, number, after))

    async def forget_files(self, before: float, limit: int) -> int:
        return await self._database.write(lambda tx: forget_files(tx, before, limit))

    async def end(
        self, lease: OperationLease, state: OperationState, error: str, now: float
    ) -> Operation:
        return await self._database.write(lambda tx: _ended(tx, hold(tx, lease), state, error, now))


def _add(tx: Tx, new: NewOperation, limit: int, now: float) -> Operation:
    known = _known(tx, new.once)
    if known is not None:
        return known
    count = sa.select(sa.func.count()).select_from(operations).where(OPEN)
    if int(tx.execute(count).scalar_one()) >= limit:
        raise Conflict(
            f"{limit} operations are open already; wait until one has ended, or cancel one with"
            " `skep op cancel`"
        )
    number = tx.execute(sa.insert(operations).values(**_new_row(tx, new, now)))
    key: Any = number.inserted_primary_key
    return read(tx.connection, int(key[0]))


def _known(tx: Tx, once: str) -> Operation | None:
    if not once:
        return None
    query = sa.select(operations).where(operations.c.once == once)
    row = tx.execute(query).first()
    return None if row is None else operation_of(row)


def _new_row(tx: Tx, new: NewOperation, now: float) -> dict[str, Any]:
    names = ("resource", "act", "filter", "creator", "moment", "rate", "confirmed")
    counts = dict.fromkeys(("matched", "settled", "lease"), 0)
    return {
        **{name: getattr(new, name) for name in names},
        **counts,
        **RELEASED,
        "once": new.once or None,
        "arguments": packed(new.arguments),
        "state": OperationState.WAITING.value,
        "results": packed([]),
        "error": "",
        "position": "",
        "bound": newest_key(tx.connection, new.resource),
        "created_at": now,
        "started_at": 0.0,
        "ended_at": 0.0,
    }


def _claim(holder: str, now: float, until: float, limit: int, tx: Tx) -> list[Operation]:
    mine = sa.and_(operations.c.holder == holder, OPEN)
    tx.execute(sa.update(operations).where(mine).values(held_until=until))
    held = tx.execute(sa.select(operations).where(mine).order_by(operations.c.no)).all()
    return [operation_of(row) for row in held] + _taken(tx, holder, now, until, limit - len(held))


def _taken(tx: Tx, holder: str, now: float, until: float, limit: int) -> list[Operation]:
    if limit <= 0:
        return []
    free = sa.select(operations).where(OPEN, operations.c.held_until < now)
    free = free.order_by(operations.c.no).limit(limit).with_for_update(skip_locked=True)
    return [
        change(tx, row.no, holder=holder, held_until=until, lease=row.lease + 1)
        for row in tx.execute(free).all()
    ]


def _add_parts(tx: Tx, operation: int, parts: Sequence[Sequence[Key]]) -> None:
    c = operation_parts.c
    last = sa.select(sa.func.max(c.no)).where(c.operation == operation)
    first = int(tx.execute(last).scalar() or 0) + 1
    rows = [
        {"operation": operation, "no": no, "size": len(keys), "objects": packed(list(keys))}
        for no, keys in enumerate(parts, first)
    ]
    if rows:
        tx.execute(sa.insert(operation_parts), rows)


def _ended(tx: Tx, found: Operation, state: OperationState, error: str, now: float) -> Operation:
    drop_parts(tx, found.id)
    if state is not OperationState.DONE:
        drop_file(tx, found.id)
    clean = error.replace("\0", "\ufffd").encode(errors="replace").decode()[:ERROR_LIMIT]
    # A center that works on it is fenced out.
    values = {"state": state.value, "error": clean, "ended_at": now, "lease": found.lease + 1}
    return change(tx, found.id, **values, **RELEASED)
