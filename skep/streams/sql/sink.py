"""Records into a table, each exactly once: rows and position share a transaction.

Everything runs in one thread of its own. The table is made from the first batch and grows
with new fields. Field names and values are never part of a statement unquoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError

from skep.errors import ConfigurationError, InvalidInput
from skep.streams.blocking_thread import OneThread
from skep.streams.host_rules import JobLimits
from skep.streams.json_records import key_text
from skep.streams.ports import Record, Refused
from skep.streams.sink_options import SqlOptions
from skep.streams.sink_url import SinkUrl
from skep.streams.sql.column_kinds import check_name, written
from skep.streams.sql.columns import BatchPlan, Rules, Shape, plan_batch
from skep.streams.sql.engines import engine_for
from skep.streams.sql.table import POSITION_NAME, POSITIONS, SinkTable


class SqlSink:
    """One table in one database."""

    def __init__(
        self, place: SinkUrl, options: SqlOptions, name: str, limits: JobLimits | None = None
    ) -> None:
        self._place, self._options = place, options
        self._engine = engine_for(place.scheme)
        self._engine.limits = limits if place.authority else None
        keys = tuple(key.strip() for key in options.key.split(",") if key.strip())
        self._check([options.table, *keys])
        self._rules = Rules(
            keys,
            options.columns,
            self._engine.key_characters,
            self._engine.key_bytes,
            self._engine.nul_fits,
            self._engine.folds_names,
        )
        self._name = f"{name}/{options.table}" if name else options.table
        if len(self._name) > POSITION_NAME:
            raise ConfigurationError(f"sql sink: the name {name[:40]!r}... is too long.")
        try:
            self._pool = self._engine.connect(place)
        except (ArgumentError, ValueError) as error:
            raise ConfigurationError(f"{place.shown}: {error}") from error
        self._table = SinkTable(self._engine, self._pool.dialect, options.table, self._rules)
        self._thread = OneThread("sink-sql")
        self._shape: Shape | None = None

    async def open(self) -> int:
        return await self._thread.run(self._open)

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        return await self._thread.run(self._write, list(records)) if records else []

    async def close(self) -> None:
        await self._thread.run(self._pool.dispose)
        await self._thread.close()

    def describe(self) -> str:
        return f"{self._place.shown} table {self._options.table}"

    def _check(self, names: list[str]) -> None:
        try:
            for name in names:
                check_name(name)
        except InvalidInput as error:
            raise ConfigurationError(f"sql sink: {error.detail}") from error

    # -- in the thread

    def _open(self) -> int:
        self._shape = None
        self._engine.prepare(self._place)
        try:
            with self._pool.connect() as connection:
                self._table.make_positions(connection)
                return self._position(connection)
        except DBAPIError as error:
            raise self._engine.explain(error, self._place.shown) from error
        except (TypeError, ValueError) as error:  # a driver that cannot use an option's value
            raise ConfigurationError(f"{self._place.shown}: {type(error).__name__}") from error

    def _write(self, records: list[Record]) -> list[Refused]:
        """Once more when another program has changed the table meanwhile."""
        try:
            if self._shape is None:
                self._shape = self._look()
                return self._store(records, self._shape)
            try:
                return self._store(records, self._shape)
            except DBAPIError as error:
                if not isinstance(self._engine.explain(error, ""), ConfigurationError):
                    raise
                self._shape = self._look()
                return self._store(records, self._shape)
        except DBAPIError as error:
            self._shape = None
            raise self._engine.explain(error, self._place.shown) from error

    def _look(self) -> Shape:
        with self._pool.connect() as connection:
            self._table.make_positions(connection)
            return self._table.look(connection)

    def _store(self, records: list[Record], shape: Shape) -> list[Refused]:
        plan = plan_batch(records, shape, self._rules)
        if plan.refused:
            return plan.refused
        if plan.added or plan.widened or not shape.columns:
            with self._pool.connect() as connection:
                shape = self._shape = self._table.fit(connection, shape, plan)
        with self._pool.connect() as connection:
            self._engine.begin(connection)
            self._store_rows(connection, records, plan, shape)
            connection.commit()
        return []

    def _store_rows(
        self, connection: sa.Connection, records: list[Record], plan: BatchPlan, shape: Shape
    ) -> None:
        known = self._position(connection)
        fresh = [
            row for record, row in zip(records, plan.rows, strict=True) if record.position > known
        ]
        if not fresh:
            return
        if self._rules.keys:
            self._upsert(connection, fresh, shape)
        else:
            self._insert(connection, fresh, shape)
        self._move(connection, records[-1].position)

    def _insert(self, connection: sa.Connection, rows: list[dict[str, Any]], shape: Shape) -> None:
        used = sorted({name for row in rows for name, value in row.items() if value is not None})
        if not used:
            for _ in rows:
                self._table.insert_empty(connection)
            return
        statement, binds = self._table.insert(used, shape)
        connection.execute(statement, [_bound(row, binds, shape) for row in rows])

    def _upsert(self, connection: sa.Connection, rows: list[dict[str, Any]], shape: Shape) -> None:
        """Fields that a record does not have keep their value; a null is a value."""
        by_fields = sorted(self._last_of_each_key(rows), key=_fields_of)
        for fields, group in groupby(by_fields, key=_fields_of):
            statement, binds = self._table.upsert(
                [name for name in fields if name in shape.columns], shape
            )
            connection.execute(statement, [_bound(row, binds, shape) for row in group])

    def _last_of_each_key(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        keys = [self._rules.fold(key) for key in self._rules.keys]
        last: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in rows:
            key = tuple(key_text(row[name]) for name in keys)
            last[key] = {**last.get(key, {}), **row}
        return list(last.values())

    def _position(self, connection: sa.Connection) -> int:
        query = f"SELECT position FROM {POSITIONS} WHERE sink = :sink{self._engine.lock_rows}"  # noqa: S608 - our own words
        found = connection.execute(sa.text(query), {"sink": self._name}).scalar()
        return int(found or 0)

    def _move(self, connection: sa.Connection, position: int) -> None:
        values = {"sink": self._name, "position": position}
        update = f"UPDATE {POSITIONS} SET position = :position WHERE sink = :sink"  # noqa: S608 - our own words
        if connection.execute(sa.text(update), values).rowcount == 0:
            insert = f"INSERT INTO {POSITIONS} (sink, position) VALUES (:sink, :position)"  # noqa: S608 - our own words
            connection.execute(sa.text(insert), values)


def _fields_of(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(row))


def _bound(row: dict[str, Any], binds: dict[str, str], shape: Shape) -> dict[str, Any]:
    return {bind: written(row.get(name), shape.columns[name][1]) for name, bind in binds.items()}
