"""Files that operations make: compressed pieces, one for each part. Run by centers only.

A piece is stored in the transaction that settles its part, so that every line is in the file once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.operations import (
    FilePiece,
    Operation,
    OperationFile,
    OperationLease,
    OperationResult,
)
from skep.store.sql.engine.database import Tx
from skep.store.sql.operations.rows import OPEN, hold, settle_part
from skep.store.sql.schema.operations import operation_files, operations


def settle_with_piece(
    tx: Tx,
    lease: OperationLease,
    part: int,
    results: Sequence[OperationResult],
    piece: FilePiece | None,
) -> Operation:
    """Settle a part and add its lines; raises LostLease."""
    after = settle_part(tx, hold(tx, lease), part, results)
    if piece is not None:
        values = {"lines": piece.lines, "bytes": piece.size, "data": piece.data}
        tx.execute(sa.insert(operation_files).values(operation=after.id, no=part, **values))
    return after


def file_of(connection: sa.Connection, number: int) -> OperationFile:
    """How large the file is by now."""
    c = operation_files.c
    query = sa.select(sa.func.count(), sa.func.sum(c.lines), sa.func.sum(c.bytes))
    row: Any = connection.execute(query.where(c.operation == number)).one()
    return OperationFile(int(row[0]), int(row[1] or 0), int(row[2] or 0))


def next_piece(connection: sa.Connection, number: int, after: int) -> tuple[int, bytes] | None:
    """(number, data) of the first piece after another one."""
    c = operation_files.c
    query = sa.select(c.no, c.data).where(c.operation == number, c.no > after)
    row = connection.execute(query.order_by(c.no).limit(1)).first()
    return None if row is None else (int(row.no), bytes(row.data))


def drop_file(tx: Tx, number: int) -> None:
    tx.execute(sa.delete(operation_files).where(operation_files.c.operation == number))


def forget_files(tx: Tx, before: float, limit: int) -> int:
    """Delete the files of operations that ended before a time; returns how many."""
    c, ended = operations.c, sa.and_(sa.not_(OPEN), operations.c.ended_at < before)
    has_file = sa.exists().where(operation_files.c.operation == c.no)
    query = sa.select(c.no).where(ended, has_file).order_by(c.no).limit(limit)
    numbers = list(tx.execute(query).scalars())
    for number in numbers:
        drop_file(tx, number)
    return len(numbers)
