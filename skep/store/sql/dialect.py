"""Every difference between SQLite, PostgreSQL and MariaDB/MySQL, and nothing else.

Rows go in by the driver's own bulk path, because SQLAlchemy's parameter handling costs
more than the insert itself. Run by centers only; never holds state of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from skep.errors import ConfigurationError, DiskFull, SkepError, StoreDown
from skep.store.sql.tables import tallies

Row = tuple[Any, ...]

_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # FULL: an acknowledged commit survives a power cut. NORMAL loses acknowledged rows.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=10000",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA cache_size=-32000",
    "PRAGMA temp_store=MEMORY",
)


class Dialect:
    """What the rest of the store asks when engines differ."""

    name: ClassVar[str]
    #: DDL inside a transaction: a crash while creating tables leaves nothing behind.
    transactional_ddl: ClassVar[bool] = True
    placeholder: ClassVar[str] = "%s"

    def engine(self, url: sa.URL) -> sa.Engine:
        raise NotImplementedError

    def begin(self, connection: sa.Connection) -> None:
        """Called first in every writing transaction."""

    def insert_many(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        """Plain rows; a conflict is an error."""
        if rows:
            connection.exec_driver_sql(self._insert(table, columns), rows)

    def insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        """Rows whose unique key is not there yet; returns how many went in."""
        raise NotImplementedError

    def add_to_tallies(self, connection: sa.Connection, rows: list[Row]) -> None:
        """(run, state, delta) rows, added to what is there."""
        raise NotImplementedError

    def lock_for_migration(self, connection: sa.Connection) -> None:
        """Let one center at a time change the schema; freed with the connection."""

    def disk_is_full(self, error: DBAPIError) -> bool:
        raise NotImplementedError

    def explain(self, error: DBAPIError) -> SkepError | None:
        """The error as one of ours, when the engine (not our SQL) is to blame."""
        if self.disk_is_full(error):
            return DiskFull(f"the {self.name} store cannot write: {error.orig}; free some space")
        if error.connection_invalidated or isinstance(error, sa.exc.OperationalError):
            return StoreDown(f"the {self.name} store does not answer: {_first_line(error.orig)}")
        return None

    def _insert(self, table: sa.Table, columns: Sequence[str]) -> str:
        names = ", ".join(self.quote(column) for column in columns)
        marks = ", ".join([self.placeholder] * len(columns))
        return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - own names

    def quote(self, column: str) -> str:
        return f'"{column}"'


class SqliteDialect(Dialect):
    """One writer at a time, which is why `Database` shares commits between callers."""

    name = "sqlite"
    placeholder = "?"

    def engine(self, url: sa.URL) -> sa.Engine:
        if url.database in {None, "", ":memory:"}:
            engine = sa.create_engine(
                "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
            )
        else:
            engine = sa.create_engine(url.set(query={}), connect_args={"timeout": 10})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        return engine

    def begin(self, connection: sa.Connection) -> None:
        # IMMEDIATE takes the write lock now: a read that later wants to write would fail.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        if not rows:
            return 0
        statement = self._insert(table, columns) + " ON CONFLICT DO NOTHING"
        return int(connection.exec_driver_sql(statement, rows).rowcount)

    def add_to_tallies(self, connection: sa.Connection, rows: list[Row]) -> None:
        statement = self._insert(tallies, ("run", "state", "n"))
        connection.exec_driver_sql(
            statement + " ON CONFLICT (run, state) DO UPDATE SET n = n + excluded.n", rows
        )

    def disk_is_full(self, error: DBAPIError) -> bool:
        text = str(error.orig)
        return isinstance(error.orig, sqlite3.Error) and (
            "disk is full" in text or "readonly" in text or "disk I/O error" in text
        )


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # We say BEGIN ourselves; the module's own guesses about transactions are switched off.
    connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)


class PostgresDialect(Dialect):
    """COPY and unnest: a thousand rows are one round trip."""

    name = "postgresql"
    #: Any number: it names our migration lock among the database's advisory locks.
    MIGRATION_LOCK: ClassVar[int] = 5_143_657

    def engine(self, url: sa.URL) -> sa.Engine:
        _need("psycopg", "postgres")
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5},
        )

    def insert_many(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        names = ", ".join(self.quote(column) for column in columns)
        driver: Any = connection.connection.driver_connection
        with (
            driver.cursor() as cursor,
            cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        if not rows:
            return 0
        names = ", ".join(self.quote(column) for column in columns)
        arrays = ", ".join(f"%s::{self._type(table, column)}[]" for column in columns)
        statement = (
            f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608
            " ON CONFLICT DO NOTHING"
        )
        by_column = tuple(list(values) for values in zip(*rows, strict=True))
        return int(connection.exec_driver_sql(statement, by_column).rowcount)

    def add_to_tallies(self, connection: sa.Connection, rows: list[Row]) -> None:
        runs, states, deltas = (list(values) for values in zip(*rows, strict=True))
        connection.exec_driver_sql(
            "INSERT INTO tallies (run, state, n)"
            " SELECT * FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[])"
            " ON CONFLICT (run, state) DO UPDATE SET n = tallies.n + excluded.n",
            (runs, states, deltas),
        )

    def lock_for_migration(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({self.MIGRATION_LOCK})")

    def disk_is_full(self, error: DBAPIError) -> bool:
        return getattr(error.orig, "sqlstate", None) in {"53100", "25006"}

    def _type(self, table: sa.Table, column: str) -> str:
        return table.c[column].type.compile(dialect=_postgres_types())


def _postgres_types() -> sa.Dialect:
    from sqlalchemy.dialects import postgresql

    return postgresql.dialect()  # type: ignore[no-untyped-call]


class MysqlDialect(Dialect):
    """MariaDB 10.6+ and MySQL 8: both know SKIP LOCKED."""

    name = "mysql"
    transactional_ddl = False
    DISK_ERRORS: ClassVar[frozenset[int]] = frozenset({3, 28, 1021, 1036, 1290})

    def engine(self, url: sa.URL) -> sa.Engine:
        _need("pymysql", "mysql")
        return sa.create_engine(
            url.set(drivername="mysql+pymysql").update_query_dict({"charset": "utf8mb4"}),
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": 5, "read_timeout": 60, "write_timeout": 60},
        )

    def insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        if not rows:
            return 0
        # IGNORE would hide other faults of a row too; rows are checked before they get here.
        statement = self._insert(table, columns).replace("INSERT", "INSERT IGNORE", 1)
        return int(connection.exec_driver_sql(statement, rows).rowcount)

    def add_to_tallies(self, connection: sa.Connection, rows: list[Row]) -> None:
        statement = self._insert(tallies, ("run", "state", "n"))
        connection.exec_driver_sql(statement + " ON DUPLICATE KEY UPDATE n = n + VALUES(n)", rows)

    def lock_for_migration(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT GET_LOCK('skep-migration', 120)")

    def disk_is_full(self, error: DBAPIError) -> bool:
        arguments: tuple[object, ...] = getattr(error.orig, "args", ())
        return any(number in self.DISK_ERRORS for number in arguments[:1])

    def quote(self, column: str) -> str:
        return f"`{column}`"


def dialect_for(url: sa.URL) -> Dialect:
    """By the URL's scheme; raises ConfigurationError for one that we do not speak."""
    known: dict[str, Dialect] = {
        "sqlite": SqliteDialect(),
        "postgresql": PostgresDialect(),
        "postgres": PostgresDialect(),
        "mysql": MysqlDialect(),
        "mariadb": MysqlDialect(),
    }
    scheme = url.drivername.partition("+")[0]
    if scheme not in known:
        raise ConfigurationError(
            f"store.url: {scheme!r} is not known; use sqlite, postgresql, mysql or mariadb"
        )
    return known[scheme]


def id_list(ids: Iterable[int]) -> str:
    """`1,2,3` for an IN clause. Integers only, so nothing can be smuggled in; thousands of
    bound parameters would cost more than the statement."""
    return ",".join(str(int(number)) for number in ids)


def _need(module: str, extra: str) -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise ConfigurationError(f"this store needs an extra: pip install 'skep[{extra}]'")


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0]
