"""Logs of instances: append once, bounded, read from any offset. Run by centers only.

All calls lock the instance's row, which stores the next offset. Short pieces are joined, so
that a program that writes a line per second does not create a row for each.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.errors import NotFound, StaleToken
from skep.store.ports.apps import LogPart, LogPiece
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.apps import app_instances, app_logs
from skep.store.sql.schema.runs import runs

#: Maximum bytes of a piece after it is joined with the one before it.
JOINED = 16 * 1024
#: Maximum pieces deleted in one transaction: some megabytes.
FORGOTTEN = 50


def add_log(tx: Tx, agent: str, piece: LogPiece, limit: int) -> int:
    """Returns the offset of the first byte that is missing."""
    row = _row(tx.connection, piece.run, piece.no, lock=True)
    if row.agent != agent or row.token != piece.token:
        raise StaleToken(f"instance {piece.no} of run {piece.run} is no longer held by {agent}")
    expected = int(row.log_next)
    gap = piece.offset - expected
    if gap > piece.dropped:  # bytes before it are missing, and the agent still has them
        return expected
    fresh = piece.data if gap >= 0 else piece.data[-gap:]
    if not fresh and gap <= 0:
        return expected
    lost = max(gap, 0)
    if lost:
        fresh = f"[{lost} bytes of log were dropped by agent {agent}]\n".encode() + fresh
    end = _append(tx, row, fresh)
    start = _trim(tx, row, end, limit)
    following = piece.offset + len(piece.data)
    values = {"log_next": following, "log_end": end, "log_start": start}
    change = sa.update(app_instances).where(_mine(app_instances, piece.run, piece.no))
    tx.execute(change.values(**values, log_lost=row.log_lost + lost))
    return following


def _append(tx: Tx, row: Any, data: bytes) -> int:
    mine = _mine(app_logs, row.run, row.no)
    end = int(row.log_end)
    newest = sa.select(app_logs).where(mine).order_by(app_logs.c.start.desc()).limit(1)
    last = tx.execute(newest).first()
    if last is not None and last.size + len(data) <= JOINED:
        joined = bytes(last.data) + data
        change = sa.update(app_logs).where(mine, app_logs.c.start == last.start)
        tx.execute(change.values(data=joined, size=len(joined)))
    else:
        new = {"run": row.run, "no": row.no, "start": end, "size": len(data), "data": data}
        tx.execute(sa.insert(app_logs).values(**new))
    return end + len(data)


def _trim(tx: Tx, row: Any, end: int, limit: int) -> int:
    """Delete whole pieces, oldest first; returns the offset of the rest."""
    oldest = int(row.log_start)
    if end - oldest <= limit:
        return oldest
    mine = _mine(app_logs, row.run, row.no)
    kept = sa.select(sa.func.min(app_logs.c.start)).where(
        mine, app_logs.c.start + app_logs.c.size > end - limit
    )
    start = int(tx.execute(kept).scalar_one())
    tx.execute(sa.delete(app_logs).where(mine, app_logs.c.start < start))
    return start


def read_log(connection: sa.Connection, run: str, no: int, start: int, limit: int) -> LogPart:
    """From `start` on, at most `limit` bytes; negative counts from the end."""
    row = _row(connection, run, no)
    wanted = row.log_end + start if start < 0 else start
    first = min(max(wanted, row.log_start), row.log_end)
    query = (
        sa.select(app_logs.c.start, app_logs.c.data)
        .where(_mine(app_logs, run, no), app_logs.c.start + app_logs.c.size > first)
        .where(app_logs.c.start < first + limit)
        .order_by(app_logs.c.start)
    )
    pieces = connection.execute(query).all()
    if pieces:  # pieces may have been deleted meanwhile
        first = max(first, pieces[0].start)
    whole = b"".join(bytes(piece.data) for piece in pieces)
    skip = first - pieces[0].start if pieces else 0
    return LogPart(first, whole[skip : skip + limit], row.log_end, row.log_start, row.log_lost)


def forget_logs(tx: Tx, run: int, limit: int) -> int:
    """Delete pieces of the logs of an ended run, by its number; returns how many. Its
    instances still show the size of their logs."""
    name = sa.select(runs.c.id).where(runs.c.no == run).scalar_subquery()
    pieces = sa.select(app_logs.c.run, app_logs.c.no, app_logs.c.start)
    pieces = pieces.where(app_logs.c.run == name).order_by(app_logs.c.no, app_logs.c.start)
    found = tx.execute(pieces.limit(min(limit, FORGOTTEN))).all()
    for number in sorted({row.no for row in found}):
        last = max(row.start for row in found if row.no == number)
        mine = _mine(app_logs, found[0].run, number)
        tx.execute(sa.delete(app_logs).where(mine, app_logs.c.start <= last))
        upto = sa.select(sa.func.min(app_logs.c.start)).where(mine).scalar_subquery()
        change = sa.update(app_instances).where(_mine(app_instances, found[0].run, number))
        tx.execute(change.values(log_start=sa.func.coalesce(upto, app_instances.c.log_end)))
    return len(found)


def log_bytes() -> Any:
    """The size of the logs of a run, for a query over `runs`."""
    size = sa.func.sum(app_instances.c.log_end - app_instances.c.log_start)
    query = sa.select(size).where(app_instances.c.run == runs.c.id)
    return sa.func.coalesce(query.correlate(runs).scalar_subquery(), 0)


def _mine(table: sa.Table, run: str, no: int) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.run == run, table.c.no == no)


def _row(connection: sa.Connection, run: str, no: int, *, lock: bool = False) -> Any:
    query = sa.select(app_instances).where(_mine(app_instances, run, no))
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFound(f"run {run} has no instance {no}")
    return row
