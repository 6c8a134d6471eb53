"""Differences between SQLite, PostgreSQL and MariaDB/MySQL in connections, writes and errors.

Only the types of columns and partial indexes differ elsewhere, in `schema/columns.py`. Other
modules ask a trait of the dialect and never compare its name.

Rows go in by the driver's own bulk path, because SQLAlchemy's parameter handling costs more than
the insert itself. Run by centers only; it must never hold state.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from skep.errors import ConfigurationError, InvalidInput, SkepError, StoreDown, TooLarge
from skep.model.states import RequestState
from skep.store.sql.engine import server_sessions
from skep.store.sql.engine.error_translation import explain
from skep.store.sql.engine.running_counts import (
    Sums,
    commit_on_mariadb,
    commit_on_postgres,
    statement,
)

Row = tuple[Any, ...]


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
    #: The engine's codes for a deadlock.
    COLLISIONS: ClassVar[frozenset[object]] = frozenset()

    @abstractmethod
    def engine(self, url: sa.URL) -> sa.Engine:
        """An engine whose connections are configured for the store."""

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
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            limit = getattr(table.c[column].type, "length", None)
            if limit and max(map(len, values)) > limit:
                raise InvalidInput(f"{table.name}.{column}: longer than {limit} characters")
        return self._insert_new(connection, table, columns, rows)

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
            one = statement(sums, 1, self.placeholder, mysql=self.name == "mysql")
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
        return explain(self.name, error, self._code(error))

    def _insert(self, table: sa.Table, columns: Sequence[str]) -> str:
        names = ", ".join(self.quote(column) for column in columns)
        marks = ", ".join([self.placeholder] * len(columns))
        return f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - own names

    def quote(self, column: str) -> str:
        return f'"{column}"'


class SqliteDialect(Dialect):
    """SQLite has one writer at a time, which is why `Database` groups commits."""

    name = "sqlite"
    placeholder = "?"
    one_writer = True

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
        sa.event.listen(engine, "connect", server_sessions.prepare_sqlite)
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


class PostgresDialect(Dialect):
    """COPY and unnest: a thousand rows are one round trip."""

    name = "postgresql"
    feeds_statements = True
    reading: ClassVar[dict[str, str]] = {"isolation_level": "AUTOCOMMIT"}
    COLLISIONS = frozenset({"40P01", "40001", "55P03"})
    #: Key of the migration lock among the database's advisory locks; any number works.
    MIGRATION_LOCK: ClassVar[int] = 5_143_657

    def engine(self, url: sa.URL) -> sa.Engine:
        _need("psycopg", "postgres")
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            # Timeouts that detect a server which vanished.
            connect_args={
                "connect_timeout": 5,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 20_000,
            },
        )
        sa.event.listen(engine, "connect", server_sessions.prepare_postgres)
        return engine

    def commit_with(self, connection: sa.Connection, everything: Sequence[Sums]) -> None:
        commit_on_postgres(connection, everything)

    def insert_many(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        if not rows:
            return
        if not connection.in_transaction():
            connection.begin()  # COPY bypasses SQLAlchemy, which would find nothing to commit
        names = ", ".join(self.quote(column) for column in columns)
        statement = f"COPY {table.name} ({names}) FROM STDIN"
        driver: Any = connection.connection.driver_connection
        with (
            server_sessions.translated(connection, statement),
            driver.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def assign(self, connection: sa.Connection, members: dict[int, list[int]]) -> None:
        ids = [number for numbers in members.values() for number in numbers]
        blocks = [block for block, numbers in members.items() for _ in numbers]
        connection.exec_driver_sql(
            f"UPDATE requests SET state = {RequestState.QUEUED:d}, block = target.block"  # noqa: S608
            " FROM unnest(%s::bigint[], %s::bigint[]) AS target (id, block)"
            " WHERE requests.id = target.id",
            (ids, blocks),
        )

    def _insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        names = ", ".join(self.quote(column) for column in columns)
        arrays = ", ".join(f"%s::{self._type(table, column)}[]" for column in columns)
        statement = (
            f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608
            " ON CONFLICT DO NOTHING"
        )
        by_column = tuple(list(values) for values in zip(*rows, strict=True))
        return int(connection.exec_driver_sql(statement, by_column).rowcount)

    def add_up(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        *keys, n = columns
        arrays = ", ".join(f"%s::{self._type(table, column)}[]" for column in columns)
        connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT * FROM unnest({arrays})"  # noqa: S608
            f" ON CONFLICT ({', '.join(keys)})"
            f" DO UPDATE SET {n} = {table.name}.{n} + excluded.{n}",
            tuple(list(values) for values in zip(*rows, strict=True)),
        )

    def lock_for_migration(self, connection: sa.Connection) -> None:
        connection.detach()  # the lock belongs to the connection and must end with it
        connection.exec_driver_sql(server_sessions.without_limits())
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({self.MIGRATION_LOCK})")

    def _code(self, error: DBAPIError) -> object:
        return getattr(error.orig, "sqlstate", None)

    def _type(self, table: sa.Table, column: str) -> str:
        return _postgres_type(table, column)


@functools.cache
def _postgres_type(table: sa.Table, column: str) -> str:
    from sqlalchemy.dialects import postgresql

    dialect: sa.Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return table.c[column].type.compile(dialect=dialect)


class MysqlDialect(Dialect):
    """MariaDB 10.6+ and MySQL 8: both know SKIP LOCKED."""

    name = "mysql"
    transactional_ddl = False
    jumps_in_groups = True
    COLLISIONS = frozenset({1020, 1205, 1213})
    PACKET_TOO_LARGE: ClassVar[int] = 1153

    def engine(self, url: sa.URL) -> sa.Engine:
        _need("pymysql", "mysql")
        return sa.create_engine(
            url.set(drivername="mysql+pymysql").update_query_dict({"charset": "utf8mb4"}),
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={
                "connect_timeout": 5,
                "read_timeout": 50,
                "write_timeout": 50,
                "init_command": server_sessions.mysql_session(),
            },
        )

    def commit_with(self, connection: sa.Connection, everything: Sequence[Sums]) -> None:
        if getattr(connection.dialect, "is_mariadb", False):
            commit_on_mariadb(connection, everything)
        else:
            super().commit_with(connection, everything)

    def _insert_new(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> int:
        # IGNORE would hide other errors of a row too; rows are validated before.
        statement = self._insert(table, columns).replace("INSERT", "INSERT IGNORE", 1)
        return int(connection.exec_driver_sql(statement, rows).rowcount)

    def insert_numbered(
        self, connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]
    ) -> list[int]:
        # MySQL (not MariaDB) has no RETURNING; single inserts are correct in both.
        statement = sa.insert(table)
        made = (connection.execute(statement, row).inserted_primary_key for row in rows)
        return [int(key[0]) for key in made if key is not None]

    def add_up(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        n = columns[-1]
        adds = f" ON DUPLICATE KEY UPDATE {n} = {n} + VALUES({n})"
        connection.exec_driver_sql(self._insert(table, columns) + adds, rows)

    def lock_for_migration(self, connection: sa.Connection) -> None:
        connection.detach()  # the lock belongs to the connection and must end with it
        # These locks are global to the server, so the name includes the database.
        lock = "SELECT GET_LOCK(CONCAT('skep-migration-', MD5(DATABASE())), 120)"
        if connection.exec_driver_sql(lock).scalar() != 1:
            raise StoreDown("another center has been migrating the store for two minutes")

    def explain(self, error: DBAPIError) -> SkepError | None:
        if self._code(error) == self.PACKET_TOO_LARGE:
            return TooLarge("one row exceeds the database's limit; raise max_allowed_packet")
        return super().explain(error)

    def _code(self, error: DBAPIError) -> object:
        arguments: tuple[object, ...] = getattr(error.orig, "args", ())
        return arguments[0] if arguments else None

    def quote(self, column: str) -> str:
        return f"`{column}`"


def dialect_for(url: sa.URL) -> Dialect:
    """The dialect for the URL's scheme; raises ConfigurationError for an unknown scheme."""
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
            f"store.url: {scheme!r} is not a known scheme; use sqlite, postgresql, mysql or mariadb"
        )
    return known[scheme]


def id_list(ids: Iterable[int]) -> str:
    """`1,2,3` for an IN clause. Integers only, so SQL injection is impossible; thousands of bound
    parameters would cost more than the statement."""
    return ",".join(str(int(number)) for number in ids)


def _need(module: str, extra: str) -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise ConfigurationError(f"this store needs an extra: pip install 'skep[{extra}]'")
