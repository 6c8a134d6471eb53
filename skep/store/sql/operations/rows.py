"""Rows of bulk operations, and the lease that fences them. Run by centers only.

A center that has lost an operation cannot change its position: every change of a row starts with
`hold`, inside the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import LostLease, NotFound
from skep.model.operations import (
    NOTES,
    OPEN_OPERATIONS,
    Key,
    NewOperation,
    Operation,
    OperationLease,
    OperationResult,
    OperationState,
    added,
)
from skep.model.unknown_objects import unknown_operation
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.operations import operation_parts, operations

OPEN = operations.c.state.in_([state.value for state in OPEN_OPERATIONS])
RELEASED = {"holder": "", "held_until": 0.0}
_ASKED = ("resource", "act", "filter", "creator", "moment", "rate", "confirmed")
_HERE = (
    *("matched", "settled", "created_at", "started_at", "ended_at"),
    *("error", "holder", "lease", "position", "bound"),
)
_results = msgspec.msgpack.Decoder(list[OperationResult])
_arguments = msgspec.msgpack.Decoder(dict[str, Any])
_notes = msgspec.msgpack.Decoder(list[str])
_keys = msgspec.msgpack.Decoder(list[Key])
packed = msgspec.msgpack.encode


def operation_of(row: Any) -> Operation:
    """A row as data."""
    asked = {name: getattr(row, name) for name in _ASKED}
    arguments = _arguments.decode(bytes(row.arguments))
    new = NewOperation(**asked, arguments=arguments, once=row.once or "")
    results = _results.decode(bytes(row.results))
    facts = {name: getattr(row, name) for name in _HERE}
    notes = _notes.decode(bytes(row.notes)) if row.notes else []
    return Operation(row.no, new, OperationState(row.state), results=results, notes=notes, **facts)


def read(connection: sa.Connection, number: int, *, lock: bool = False) -> Operation:
    """Raises NotFound. With `lock` the row does not change before the transaction ends."""
    query = sa.select(operations).where(operations.c.no == number)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise unknown_operation(number)
    return operation_of(row)


def hold(tx: Tx, lease: OperationLease) -> Operation:
    """Lock the operation for this transaction; raises LostLease."""
    try:
        found = read(tx.connection, lease.operation, lock=True)
    except NotFound:
        raise lost(lease) from None
    if found.proof != lease or not found.is_open:
        raise lost(lease)
    return found


def lost(lease: OperationLease) -> LostLease:
    return LostLease(
        f"center {lease.holder} no longer works on operation {lease.operation}: it was cancelled,"
        " has ended, or another center has taken it"
    )


def change(tx: Tx, number: int, **values: Any) -> Operation:
    """Write columns of a row that is held; returns the new row."""
    tx.execute(sa.update(operations).where(operations.c.no == number).values(**values))
    return read(tx.connection, number)


def settle_part(
    tx: Tx,
    held: Operation,
    part: int,
    results: Sequence[OperationResult],
    left: Sequence[Key] = (),
    notes: Sequence[str] = (),
) -> Operation:
    """Count what became of a part, and delete it, but for the keys that are left. Raises LostLease
    for a part that is processed already."""
    c = operation_parts.c
    this = sa.and_(c.operation == held.id, c.no == part)
    size = tx.execute(sa.select(c.size).where(this)).scalar()
    if size is None:
        raise lost(held.proof)
    if left:
        rest = {"size": len(left), "objects": packed(list(left))}
        tx.execute(sa.update(operation_parts).where(this).values(**rest))
    else:
        tx.execute(sa.delete(operation_parts).where(this))
    settled = held.settled + int(size) - len(left)
    kept = packed(added(held.results, results))
    more = [note for note in dict.fromkeys(notes) if note not in held.notes]
    told = {"notes": packed([*held.notes, *more][:NOTES])} if more else {}
    return change(tx, held.id, settled=settled, results=kept, **told)


def keys_of(row: Any) -> list[Key]:
    return _keys.decode(bytes(row.objects))


def drop_parts(tx: Tx, number: int) -> None:
    """The set of an operation that has ended is not needed any more."""
    tx.execute(sa.delete(operation_parts).where(operation_parts.c.operation == number))
