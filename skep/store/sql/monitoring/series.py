"""Rows of series: written once per flush, rolled up once, deleted by age. Centers only.

Implements `SeriesStore`. A fine row is added to the coarser rows by the transaction that marks it,
so that neither a crash nor a second center counts it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.monitoring.buckets import FINE, bucket, merged
from skep.model.monitoring.series import Cells, SeriesRow
from skep.store.ports.monitoring import MonitorLease
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.monitoring.leases import check_monitor_lease
from skep.store.sql.schema.monitoring import series

_COLUMNS = ("step", "run", "at", "writer", "cells", "rolled")
_decoder = msgspec.msgpack.Decoder(Cells)
_KEY = (series.c.step, series.c.run, series.c.at, series.c.writer)


class SqlSeries:
    """Rows of `series`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[SeriesRow]) -> int:
        values = [(*_key_of(row), msgspec.msgpack.encode(row.cells), 0) for row in rows]

        def work(tx: Tx) -> int:
            return tx.dialect.insert_new(tx.connection, series, _COLUMNS, values)

        return await self._database.write(work, quick=True)

    async def read(self, step: int, run: str, start: int, end: int, limit: int) -> list[SeriesRow]:
        span = sa.and_(series.c.at >= start, series.c.at < end)
        query = sa.select(series).where(series.c.step == step, series.c.run == run, span)
        return await self._rows(query.order_by(series.c.at, series.c.writer).limit(limit))

    async def recent(self, step: int, start: int, limit: int) -> list[SeriesRow]:
        query = sa.select(series).where(series.c.step == step, series.c.at >= start)
        return await self._rows(query.order_by(series.c.at.desc()).limit(limit))

    async def _rows(self, query: sa.Select[Any]) -> list[SeriesRow]:
        return await self._database.read(lambda c: [_row(row) for row in c.execute(query)])

    async def roll_up(self, lease: MonitorLease, steps: Sequence[int], limit: int) -> int:
        def work(tx: Tx) -> int:
            check_monitor_lease(tx, lease)
            return _roll_up(tx, steps, limit)

        return await self._database.write(work)

    async def trim(
        self, lease: MonitorLease, ages: Sequence[tuple[int, int]], rows: int, limit: int
    ) -> int:
        def work(tx: Tx) -> int:
            check_monitor_lease(tx, lease)
            return sum(_trim(tx, step, oldest, rows, limit) for step, oldest in ages)

        return await self._database.write(work)


def _key_of(row: SeriesRow) -> tuple[int, str, int, str]:
    return row.step, row.run, row.at, row.writer


def _row(row: Any) -> SeriesRow:
    return SeriesRow(row.step, row.at, row.run, row.writer, _decoder.decode(bytes(row.cells)))


def _is(key: tuple[Any, ...]) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == value for column, value in zip(_KEY, key, strict=True)))


def _roll_up(tx: Tx, steps: Sequence[int], limit: int) -> int:
    new = sa.and_(series.c.rolled == 0, series.c.step == FINE.step)
    query = sa.select(series).where(new).order_by(series.c.at).limit(limit)
    found = [_row(row) for row in tx.execute(query.with_for_update())]
    groups: dict[tuple[int, str, int, str], list[Cells]] = {}
    for row in found:
        for step in steps:
            key = (step, row.run, bucket(row.at, step), "")
            groups.setdefault(key, []).append(row.cells)
    for key, cells in sorted(groups.items()):
        _add(tx, key, cells)
    for row in found:
        tx.execute(sa.update(series).where(_is(_key_of(row))).values(rolled=1))
    return len(found)


def _add(tx: Tx, key: tuple[int, str, int, str], cells: Sequence[Cells]) -> None:
    known = tx.execute(sa.select(series.c.cells).where(_is(key))).scalar()
    before = [] if known is None else [_decoder.decode(bytes(known))]
    packed = msgspec.msgpack.encode(merged([*before, *cells]))
    if known is None:
        tx.dialect.insert_many(tx.connection, series, _COLUMNS, [(*key, packed, 1)])
    else:
        tx.execute(sa.update(series).where(_is(key)).values(cells=packed))


def _trim(tx: Tx, step: int, oldest: int, rows: int, limit: int) -> int:
    of_step = series.c.step == step
    newest = sa.select(series.c.at).where(of_step).order_by(series.c.at.desc())
    last_kept = tx.execute(newest.offset(rows).limit(1)).scalar()
    before = oldest if last_kept is None else max(oldest, last_kept)
    old = sa.and_(of_step, series.c.at < before, series.c.rolled == 1)
    query = sa.select(*_KEY).where(old).order_by(series.c.at).limit(limit)
    keys = [tuple(row) for row in tx.execute(query)]
    for key in keys:
        tx.execute(sa.delete(series).where(_is(key)))
    return len(keys)
