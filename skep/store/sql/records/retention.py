"""Deletes old records of ended runs only, in small batches. Implements `RetentionStore`.

Run by centers only. A batch is one transaction; several centers can delete at once, and a center
that dies leaves a batch either done or not begun. A segment is deleted in three steps: no row
refers to it, it is marked so that no row ever will, its file is deleted.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.model.retention import DeletionSum, KeepKind
from skep.model.states import RequestState, RunState
from skep.store.ports.ended_work import EndedRun, SegmentRow
from skep.store.sql.apps.logs import forget_logs, log_bytes
from skep.store.sql.engine.database import ACCEPTED, Database, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import ENDED_BLOCKS
from skep.store.sql.records.deliveries import open_delivery
from skep.store.sql.requests.delete_ended import forget_requests, forget_spans
from skep.store.sql.runs.runs import hold_runs
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.ended_work import deletions, segment_runs
from skep.store.sql.schema.records import segments
from skep.store.sql.schema.requests import requests, tallies
from skep.store.sql.schema.runs import runs

#: Bytes of a row of each kind with its indexes, measured on SQLite; others are similar.
ROW_BYTES = {"logs": 300, "rows": 600}
_ENDED = (str(RunState.FINISHED), str(RunState.CANCELLED))
_OPEN = [int(s) for s in (RequestState.WAITING, RequestState.QUEUED, RequestState.LEASED)]
_OPEN.append(int(RequestState.DELAYED))
_COLUMNS = ("run", "kind", "at", "upto", "n", "done")
_ended_at = sa.func.coalesce(runs.c.changed_at, runs.c.created_at)


class SqlRetention:
    """Rows of `deletions`, and of everything that can be deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ended(
        self, kind: KeepKind, before: float, after: tuple[float, int], limit: int
    ) -> list[EndedRun]:
        since, number = after
        later = sa.or_(_ended_at > since, sa.and_(_ended_at == since, runs.c.no > number))
        query = (
            sa.select(runs.c.no, runs.c.id, runs.c.job, _ended_at, _volume(kind))
            .where(runs.c.state.in_(_ENDED), _ended_at < before, later, ~_deleted(kind))
            .where(*_delivered(kind))
            .order_by(_ended_at, runs.c.no)
            .limit(limit)
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [EndedRun(no, name, job, at, int(size or 0)) for no, name, job, at, size in rows]

    async def volumes(self, kind: KeepKind) -> dict[str, int]:
        query = sa.select(runs.c.job, sa.func.sum(_volume(kind))).where(~_deleted(kind))
        rows = await self._database.read(lambda c: c.execute(query.group_by(runs.c.job)).all())
        return {job: int(size) for job, size in rows if size}

    async def forget(self, kind: KeepKind, run: int, now: float, limit: int) -> tuple[int, bool]:
        def work(tx: Tx) -> tuple[int, bool]:
            held = hold_runs(tx, [run])
            if run not in held or not held[run].ended or _has_open(tx, run):
                return 0, True
            if kind == "rows" and _undelivered(tx, held[run].id):
                return 0, True
            count, done = _ONE_BATCH[kind](tx, run, limit)
            if kind == "rows" and done:
                forget_spans(tx, run)
            _note(tx, run, kind, now, count, done)
            return count, done

        return await self._database.write(work)

    async def deleted(self) -> list[DeletionSum]:
        n, last = sa.func.sum(deletions.c.n), sa.func.max(deletions.c.at)
        query = sa.select(deletions.c.kind, sa.func.count(), n, last).where(deletions.c.n > 0)
        query = query.group_by(deletions.c.kind).order_by(deletions.c.kind)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [DeletionSum(kind, count, int(total), at) for kind, count, total, at in rows]

    async def mark_segments(self, now: float, limit: int) -> list[str]:
        owned = sa.exists().where(segment_runs.c.segment == segments.c.name)
        free = sa.select(segments.c.name).where(segments.c.deleted_at.is_(None), ~owned)
        free = free.order_by(segments.c.name).limit(limit)

        def work(tx: Tx) -> list[str]:
            names = list(tx.execute(free).scalars())
            return [name for name in names if _mark_for_deletion(tx, name, now)]

        return await self._database.write(work)

    async def marked_segments(self, limit: int) -> list[SegmentRow]:
        query = sa.select(segments.c.name, segments.c.committed, segments.c.deleted_at)
        query = query.where(segments.c.deleted_at.is_not(None), segments.c.gone.is_(None))
        query = query.order_by(segments.c.name).limit(limit)
        return await self._database.read(lambda c: [SegmentRow(*row) for row in c.execute(query)])

    async def segment_gone(self, name: str) -> None:
        change = sa.update(segments).where(segments.c.name == name).values(gone=1)
        await self._database.write(lambda tx: tx.execute(change) and None)


def _deleted(kind: KeepKind) -> sa.ColumnElement[bool]:
    same = sa.and_(deletions.c.run == runs.c.no, deletions.c.kind == kind)
    return sa.exists().where(same, deletions.c.done == 1).correlate(runs)


def _delivered(kind: KeepKind) -> list[sa.ColumnElement[bool]]:
    """Items that a sink does not have yet are not deleted, whatever their age."""
    return [~open_delivery(runs.c.id).correlate(runs)] if kind == "rows" else []


def _undelivered(tx: Tx, run: str) -> bool:
    return bool(tx.execute(sa.select(open_delivery(sa.literal(run)))).scalar())


def _volume(kind: KeepKind) -> Any:
    if kind == "bodies":
        size = sa.select(sa.func.sum(segment_runs.c.n)).where(segment_runs.c.run == runs.c.no)
        return size.correlate(runs).scalar_subquery()
    count = sa.select(tallies.c.n * ROW_BYTES[kind])
    count = count.where(tallies.c.run == runs.c.no, tallies.c.state == ACCEPTED)
    found = count.correlate(runs).scalar_subquery()
    return sa.func.coalesce(found, 0) + log_bytes() if kind == "logs" else found


def _has_open(tx: Tx, run: int) -> bool:
    """Whether an agent may still hold requests of the run."""
    query = sa.select(sa.func.sum(tallies.c.n)).where(tallies.c.run == run)
    return bool(tx.execute(query.where(tallies.c.state.in_(_OPEN))).scalar())


def _bodies(tx: Tx, run: int, _limit: int) -> tuple[int, bool]:
    """The run releases its bytes: few rows, whatever the number of bytes."""
    owned = segment_runs.c.run == run
    size = tx.execute(sa.select(sa.func.sum(segment_runs.c.n)).where(owned)).scalar()
    tx.execute(sa.delete(segment_runs).where(owned))
    return int(size or 0), True


def _logs(tx: Tx, run: int, limit: int) -> tuple[int, bool]:
    """Attempts and histories. Without attempts the bytes cannot be found: they are deleted too."""
    start = _upto(tx, run, "logs")
    query = sa.select(requests.c.id).where(requests.c.run == run, requests.c.id > start)
    ids = list(tx.execute(query.order_by(requests.c.id).limit(limit)).scalars())
    if ids:
        done = f"DELETE FROM attempts WHERE request IN ({id_list(ids)})"  # noqa: S608 - integers
        count = tx.sql(done).rowcount
        _remember(tx, run, "logs", ids[-1])
        return count, False
    _bodies(tx, run, limit)
    return _histories(tx, run, limit)


def _histories(tx: Tx, run: int, limit: int) -> tuple[int, bool]:
    there = sa.text("EXISTS (SELECT 1 FROM block_history h WHERE h.block = blocks.id)")
    query = sa.select(blocks.c.id).where(blocks.c.run == run, there)
    ids = list(tx.execute(query.order_by(blocks.c.id).limit(limit)).scalars())
    if not ids:
        pieces = forget_logs(tx, run, limit)
        return pieces, not pieces
    return tx.sql(f"DELETE FROM block_history WHERE block IN ({id_list(ids)})").rowcount, False  # noqa: S608


def _rows(tx: Tx, run: int, limit: int) -> tuple[int, bool]:
    query = sa.select(requests.c.id).where(requests.c.run == run).limit(limit)
    ids = list(tx.execute(query.with_for_update(skip_locked=True)).scalars())
    if ids:
        return forget_requests(tx, ids), False
    _bodies(tx, run, limit)
    ended = sa.select(blocks.c.id).where(blocks.c.run == run, ENDED_BLOCKS)
    found = list(tx.execute(ended.order_by(blocks.c.id).limit(limit)).scalars())
    if not found:
        return 0, not forget_logs(tx, run, limit)
    numbers = id_list(found)
    tx.sql(f"DELETE FROM block_history WHERE block IN ({numbers})")  # noqa: S608 - integers
    tx.sql(f"DELETE FROM block_bodies WHERE block IN ({numbers})")  # noqa: S608 - integers
    tx.sql(f"DELETE FROM blocks WHERE id IN ({numbers})")  # noqa: S608 - integers
    return 0, False


_ONE_BATCH = {"bodies": _bodies, "logs": _logs, "rows": _rows}


def _upto(tx: Tx, run: int, kind: KeepKind) -> int:
    query = sa.select(deletions.c.upto).where(deletions.c.run == run, deletions.c.kind == kind)
    return int(tx.execute(query).scalar() or 0)


def _remember(tx: Tx, run: int, kind: KeepKind, upto: int) -> None:
    row = (run, kind, 0.0, upto, 0, 0)
    if not tx.dialect.insert_new(tx.connection, deletions, _COLUMNS, [row]):
        tx.execute(_row_of(run, kind).values(upto=upto))


def _note(tx: Tx, run: int, kind: KeepKind, now: float, count: int, done: bool) -> None:
    tx.dialect.insert_new(tx.connection, deletions, _COLUMNS, [(run, kind, now, 0, 0, 0)])
    change = {"at": now, "n": deletions.c.n + count, "done": int(done)}
    tx.execute(_row_of(run, kind).values(**change))


def _row_of(run: int, kind: KeepKind) -> Any:
    return sa.update(deletions).where(deletions.c.run == run, deletions.c.kind == kind)


def _mark_for_deletion(tx: Tx, name: str, now: float) -> bool:
    """Under the lock of its row, which every report that uses the segment takes too."""
    locked = sa.select(segments.c.deleted_at).where(segments.c.name == name).with_for_update()
    if tx.execute(locked).scalar() is not None:
        return False
    owned = sa.select(sa.func.count()).where(segment_runs.c.segment == name)
    if tx.execute(owned).scalar():
        return False
    tx.execute(sa.update(segments).where(segments.c.name == name).values(deleted_at=now))
    return True
