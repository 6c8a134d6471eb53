"""SQLite: one file, one writer at a time. Run by centers only."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from skep.errors import ConfigurationError, StoreDown
from skep.store.sql.engine.dialect import ColumnKind, Dialect
from skep.store.sql.engine.row_inserts import Row
from skep.store.sql.engine.text_matching import Expression, TextMatching, Truth, next_text

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # FULL: an acknowledged commit survives a power cut. NORMAL loses acknowledged rows.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=10000",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA cache_size=-32000",
    "PRAGMA temp_store=MEMORY",
)


def prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Called with each new connection."""
    # The store sends BEGIN itself; the module's automatic transactions are switched off.
    connection.isolation_level = None
    for pragma in _PRAGMAS:
        connection.execute(pragma)


class SqliteText(TextMatching):
    """LIKE ignores case in SQLite, so that it is not used. `lower` knows only ASCII."""

    finds_prefixes = True

    def _folded(self, column: Expression) -> Expression:
        return sa.func.lower(column)

    def _starts(self, column: Expression, text: str) -> Truth:
        after = next_text(text)
        return column >= text if after is None else sa.and_(column >= text, column < after)

    def _ends(self, column: Expression, text: str) -> Truth:
        return sa.func.substr(column, -len(text)) == text

    def _contains(self, column: Expression, text: str) -> Truth:
        return sa.func.instr(column, text) > 0


class SqliteDialect(Dialect):
    """SQLite has one writer at a time, which is why `Database` groups commits."""

    name = "sqlite"
    placeholder = "?"
    one_writer = True
    partial_indexes = True
    schemes = ("sqlite",)
    engine_names = ("sqlite",)
    FULL = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
    UNWRITABLE = frozenset({"SQLITE_READONLY", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC"})
    DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
    text = SqliteText()
    dump_file = "store.db"

    def one_connection(self, url: sa.URL) -> bool:
        return url.database in {None, "", ":memory:"}

    def file(self, url: sa.URL) -> Path | None:
        return None if self.one_connection(url) else Path(str(url.database))

    def engine(self, url: sa.URL) -> sa.Engine:
        if self.one_connection(url):
            engine = sa.create_engine(
                "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
            )
        else:
            engine = sa.create_engine(url.set(query={}), connect_args={"timeout": 10})
        sa.event.listen(engine, "connect", prepare_sqlite)
        return engine

    def begin(self, connection: sa.Connection) -> None:
        # IMMEDIATE takes the write lock now: upgrading a read lock later would fail.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        statement = self._insert(table, columns) + " ON CONFLICT DO NOTHING"
        return int(connection.exec_driver_sql(statement, rows).rowcount)

    def add_up(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        *keys, n = columns
        adds = f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {n} = {n} + excluded.{n}"
        connection.exec_driver_sql(self._insert(table, columns) + adds, rows)

    def _code(self, error: DBAPIError) -> object:
        return getattr(error.orig, "sqlite_errorname", None)

    def column_type(self, kind: ColumnKind, length: int) -> Any:  # noqa: ARG002 - has no length
        # Only a column of this very type chooses its own numbers.
        return sa.Integer() if kind is ColumnKind.BIG_ID else None

    def dump(self, url: sa.URL, target: Path) -> None:
        _copy(self._on_disk(url), target)

    def load(self, url: sa.URL, source: Path) -> None:
        # Nothing is written next to the backup, which may be on a read-only disk.
        _copy(source, self._on_disk(url), "immutable=1")

    def _on_disk(self, url: sa.URL) -> Path:
        if (file := self.file(url)) is None:
            raise ConfigurationError("a store in memory cannot be backed up; use a store on disk")
        return file

    def skip_numbers(self, connection: sa.Connection, table: str, column: str, gap: int) -> None:  # noqa: ARG002 - by table
        change = f"UPDATE sqlite_sequence SET seq = seq + {gap} WHERE name = '{table}'"  # noqa: S608
        if not connection.exec_driver_sql(change).rowcount:
            row = f"INSERT INTO sqlite_sequence (name, seq) VALUES ('{table}', {gap})"  # noqa: S608
            connection.exec_driver_sql(row)


def _copy(source: Path, target: Path, how: str = "mode=ro") -> None:
    """Copies in one step: others may write meanwhile, and the copy does not include that."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?{how}", uri=True)) as before,
            closing(sqlite3.connect(target)) as after,
        ):
            target.chmod(0o600)
            before.backup(after, pages=-1)
    except sqlite3.Error as error:
        raise StoreDown(f"cannot copy {source} to {target}: {error}") from error
