"""What differs between databases: connections, types, writes, errors, text, dumps.

One subclass per database, in `dialects/`; `dialects/registry.py` lists them. Other modules ask a
trait of the dialect and never compare its name.

Rows go in by the driver's own bulk path, because SQLAlchemy's parameter handling costs more than
the insert itself. Run by centers only; it must never hold state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import ConfigurationError, SkepError
from skep.model.states import RequestState
from skep.store.sql.engine.error_translation import explain
from skep.store.sql.engine.row_inserts import Inserted, Row, check_lengths, highest_id
from skep.store.sql.engine.running_counts import Sums, statement
from skep.store.sql.engine.text_matching import TextMatching


class ColumnKind(Enum):
    """Columns whose type can differ; `schema/columns.py` has their standard types."""

    #: A number that the database chooses.
    BIG_ID = "big id"
    #: Short text that is compared by every character and its case.
    NAME = "name"
    LONG_TEXT = "long text"
    BYTES = "bytes"
    DIGEST = "digest"


class Dialect(ABC):
    """The operations that differ between engines."""

    name: ClassVar[str]
    #: DDL inside a transaction: a crash while creating tables leaves nothing behind.
    transactional_ddl: ClassVar[bool] = True
    placeholder: ClassVar[str] = "%s"
    #: Options of connections that only read.
    reading: ClassVar[dict[str, str]] = {}
    #: One transaction writes at a time.
    one_writer: ClassVar[bool] = False
    #: A change can hand its rows to another statement, and a list is one parameter.
    feeds_statements: ClassVar[bool] = False
    #: GROUP BY jumps from group to group in an index; many subqueries are slow.
    jumps_in_groups: ClassVar[bool] = False
    #: The planner guesses that conditions are independent, and reads an index in the order of
    #: another column if the guess says that it ends soon. An order by the columns of the right
    #: index prevents that.
    guesses_independence: ClassVar[bool] = False
    #: Indexes of the rows that match a condition.
    partial_indexes: ClassVar[bool] = False
    #: How the engine writes "add to the row with the same key": VALUES() in ON DUPLICATE KEY.
    duplicate_key_updates: ClassVar[bool] = False
    #: Schemes of URLs, and SQLAlchemy's names of the engine.
    schemes: ClassVar[tuple[str, ...]]
    engine_names: ClassVar[tuple[str, ...]]
    #: The engine's codes for a deadlock, a full disk, a disk that cannot be written to, and
    #: damaged files.
    COLLISIONS: ClassVar[frozenset[object]] = frozenset()
    FULL: ClassVar[frozenset[object]] = frozenset()
    UNWRITABLE: ClassVar[frozenset[object]] = frozenset()
    DAMAGED: ClassVar[frozenset[object]] = frozenset()
    #: Compares text in filters.
    text: ClassVar[TextMatching] = TextMatching()
    #: Name of the file of a dump.
    dump_file: ClassVar[str]

    @abstractmethod
    def engine(self, url: sa.URL) -> sa.Engine:
        """An engine whose connections are configured for the store."""

    def column_type(self, kind: ColumnKind, length: int) -> Any:  # noqa: ARG002 - most need none
        """The engine's own type for a kind of column; None = the standard type. `length` is 0
        where the kind has none."""
        return None

    @abstractmethod
    def dump(self, url: sa.URL, target: Path) -> None:
        """Write a consistent copy of all committed data while centers use it. Blocking; raises
        StoreDown, and ConfigurationError when a program is missing."""

    @abstractmethod
    def load(self, url: sa.URL, source: Path) -> None:
        """Load a dump into an empty database; the same errors."""

    @abstractmethod
    def skip_numbers(self, connection: sa.Connection, table: str, column: str, gap: int) -> None:
        """The next row of a table gets a number at least `gap` above all numbers so far."""

    def one_connection(self, _url: sa.URL) -> bool:
        """Whether the whole database is one connection (SQLite in memory)."""
        return False

    def file(self, _url: sa.URL) -> Path | None:
        """The file that holds the database, if this machine has it as one."""
        return None

    def begin(self, connection: sa.Connection) -> None:  # noqa: B027 - optional
        """Called first in every writing transaction."""

    def insert_many(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        """Insert rows; a conflict is an error."""
        if rows:
            connection.exec_driver_sql(self._insert(table, columns), rows)

    def insert_numbered(
        self, connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]
    ) -> list[int]:
        """Insert rows whose id the database chooses; returns the ids, in the order of the rows."""
        statement = sa.insert(table).returning(table.c.id, sort_by_parameter_order=True)
        return [int(number) for number in connection.execute(statement, rows).scalars()]

    def assign(self, connection: sa.Connection, members: dict[int, list[int]]) -> None:
        """Put requests into blocks: block id -> ids of its requests."""
        for block, ids in members.items():
            connection.exec_driver_sql(
                f"UPDATE requests SET state = {RequestState.QUEUED:d}, block = {block:d}"  # noqa: S608
                f" WHERE id IN ({id_list(ids)})"
            )

    def insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        """Insert rows whose unique key is new; returns how many.

        Raises InvalidInput for a text that is longer than its column, before anything is
        written: SQLite would keep it, and MySQL would cut it under INSERT IGNORE.
        """
        if not rows:
            return 0
        check_lengths(table, columns, rows)
        return self._insert_new(connection, table, columns, rows)

    def insert_spanning(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> Inserted:
        """`insert_new`, and between which ids the new rows are; ids rise."""
        before = highest_id(connection, table)
        new = self.insert_new(connection, table, columns, rows)
        return Inserted(new, before + 1, highest_id(connection, table) if new else before)

    @abstractmethod
    def _insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        """`insert_new`, in the SQL of the engine."""

    @abstractmethod
    def add_up(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        """Upsert rows that end in a number, which is added to that of the row with the same key."""

    def commit_with(self, connection: sa.Connection, everything: Sequence[Sums]) -> None:
        """Add these counts, then commit: in one message where the engine can."""
        for sums in everything:
            one = statement(sums, 1, self.placeholder, mysql=self.duplicate_key_updates)
            connection.exec_driver_sql(one, sums.rows)
        connection.commit()

    def lock_for_migration(self, connection: sa.Connection) -> None:  # noqa: B027 - SQLite needs none
        """Lock the schema for one center; released with the connection."""

    def collided(self, error: DBAPIError) -> bool:
        """Whether a transaction was rolled back because of a conflict with another one.

        Never on SQLite: it has one writer, and a writer that waits too long has not begun.
        """
        return self._code(error) in self.COLLISIONS

    @abstractmethod
    def _code(self, error: DBAPIError) -> object:
        """The engine's own name or number for an error."""

    def explain(self, error: DBAPIError) -> SkepError | None:
        """The error as a SkepError; None when Skep's own SQL is wrong."""
        code = self._code(error)
        return explain(
            self.name,
            error,
            full=code in self.FULL,
            unwritable=code in self.UNWRITABLE,
            damaged=code in self.DAMAGED,
        )

    def _insert(self, table: sa.Table, columns: Sequence[str]) -> str:
        names = ", ".join(self.quote(column) for column in columns)
        marks = ", ".join([self.placeholder] * len(columns))
        return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - own names

    def quote(self, column: str) -> str:
        return f'"{column}"'


def id_list(ids: Iterable[int]) -> str:
    """`1,2,3` for an IN clause. Integers only, so SQL injection is impossible; thousands of bound
    parameters would cost more than the statement."""
    return ",".join(str(int(number)) for number in ids)


def need_driver(module: str, extra: str) -> None:
    """Raises ConfigurationError when the driver of a database is not installed."""
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise ConfigurationError(f"this store needs an extra: pip install 'skep[{extra}]'")
