"""The table of a sink and the table of positions: made, looked at, grown, written.

Runs in the sink's thread. Every name goes through the dialect's quoting, and values are
bound under names of our own (`v!0`, `v!1`, ...), which no field can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.errors import ConfigurationError
from skep.streams.sql.column_kinds import FLOAT_LIMIT, Kind
from skep.streams.sql.columns import IDENTITY, BatchPlan, Rules, Shape
from skep.streams.sql.engines import SqlEngine

POSITIONS = "skep_positions"
#: Characters of a sink's name.
POSITION_NAME = 190


class SinkTable:
    """Statements about one table."""

    def __init__(self, engine: SqlEngine, dialect: sa.Dialect, name: str, rules: Rules) -> None:
        self._engine, self._rules = engine, rules
        self._name = name
        self.quote = dialect.identifier_preparer.quote_identifier
        self._quoted = self.quote(name)

    def make_positions(self, connection: sa.Connection) -> None:
        if sa.inspect(connection).has_table(POSITIONS):
            return
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {POSITIONS} "
            f"(sink VARCHAR({POSITION_NAME}) NOT NULL PRIMARY KEY, position BIGINT NOT NULL)"
            f"{self._engine.table_options(connection)}"
        )
        connection.commit()

    def look(self, connection: sa.Connection) -> Shape:
        """The columns that are there; none when there is no table."""
        inspector = sa.inspect(connection)
        if not inspector.has_table(self._name):
            return Shape({})
        columns: dict[str, tuple[str, Kind]] = {}
        for column in inspector.get_columns(self._name):
            name = str(column["name"])
            if name != IDENTITY:
                kind = self._engine.kind_of_column(column["type"])
                columns[self._rules.fold(name)] = (name, kind)
        self._check_key(inspector)
        return Shape(columns)

    def _check_key(self, inspector: sa.Inspector) -> None:
        """Without a unique index MySQL would store the same key twice and say nothing."""
        wanted = {self._rules.fold(key) for key in self._rules.keys}
        unique: list[Sequence[str | None]] = [
            inspector.get_pk_constraint(self._name)["constrained_columns"]
        ]
        indexes = inspector.get_indexes(self._name)
        unique += [index["column_names"] for index in indexes if index["unique"]]
        constraints = inspector.get_unique_constraints(self._name)
        unique += [constraint["column_names"] for constraint in constraints]
        if wanted and not any(wanted == {self._rules.fold(str(c)) for c in u} for u in unique):
            raise ConfigurationError(
                f"the table {self._name} has no unique index on {', '.join(self._rules.keys)}, "
                "which the option key needs."
            )

    def fit(self, connection: sa.Connection, shape: Shape, plan: BatchPlan) -> Shape:
        """Make or change the table as the plan wants; the columns that it has then."""
        self._engine.begin(connection)
        if not sa.inspect(connection).has_table(self._name):
            self._create(connection, plan)
        else:
            for name, kind in plan.added.values():
                self._add(connection, name, kind)
            for folded, kind in plan.widened.items():
                self._widen(connection, shape.columns[folded], kind)
        connection.commit()
        return self.look(connection)

    def _create(self, connection: sa.Connection, plan: BatchPlan) -> None:
        keys = [self._rules.fold(key) for key in self._rules.keys]
        parts = [] if keys else [f"{IDENTITY} {self._engine.identity}"]
        parts += [
            self._column(name, kind, folded in keys) for folded, (name, kind) in plan.added.items()
        ]
        if keys:
            quoted = ", ".join(self.quote(plan.added[key][0]) for key in keys)
            parts.append(f"PRIMARY KEY ({quoted})")
        options = self._engine.table_options(connection)
        connection.exec_driver_sql(f"CREATE TABLE {self._quoted} ({', '.join(parts)}){options}")

    def _column(self, name: str, kind: Kind, is_key: bool = False) -> str:
        text = is_key and kind is Kind.TEXT
        word = self._engine.key_text if text else self._engine.types[kind]
        return f"{self.quote(name)} {word}{' NOT NULL' if is_key else ''}"

    def _add(self, connection: sa.Connection, name: str, kind: Kind) -> None:
        column = self._column(name, kind)
        connection.exec_driver_sql(f"ALTER TABLE {self._quoted} ADD COLUMN {column}")

    def _widen(self, connection: sa.Connection, column: tuple[str, Kind], kind: Kind) -> None:
        name, was = column
        quoted = self.quote(name)
        if was is Kind.INT and kind is Kind.FLOAT and self._has_large(connection, quoted):
            kind = Kind.TEXT
        self._engine.widen(connection, self._quoted, quoted, kind)

    def _has_large(self, connection: sa.Connection, column: str) -> bool:
        """Whether a whole number is in it that would change as a float."""
        query = (
            f"SELECT 1 FROM {self._quoted} "  # noqa: S608 - quoted names and our own number
            f"WHERE {column} > {FLOAT_LIMIT} OR {column} < -{FLOAT_LIMIT} LIMIT 1"
        )
        return connection.exec_driver_sql(query).first() is not None

    # -- rows

    def insert(self, folded: list[str], shape: Shape) -> tuple[Any, dict[str, str]]:
        """(the statement, the name under which each column's value is bound)."""
        names = [shape.columns[name][0] for name in folded]
        binds = {name: f"v!{number}" for number, name in enumerate(folded)}
        table = sa.table(self._name, *(sa.column(name) for name in names))
        values: dict[str, Any] = {
            shape.columns[name][0]: sa.bindparam(bind) for name, bind in binds.items()
        }
        return self._engine.insert(table).values(values), binds

    def insert_empty(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"INSERT INTO {self._quoted} {self._engine.empty_row}")

    def upsert(self, folded: list[str], shape: Shape) -> tuple[Any, dict[str, str]]:
        statement, binds = self.insert(folded, shape)
        keys = [shape.columns[self._rules.fold(key)][0] for key in self._rules.keys]
        others = [name for name in (shape.columns[f][0] for f in folded) if name not in keys]
        return self._engine.update_on(statement, keys, others), binds
