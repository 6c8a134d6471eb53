"""The differences between the databases that a sink writes into, one class for each.

Runs in the sink's thread. It names types, alters columns, and says what an error of a
driver means: the place is away, the place is wrong, or the records are.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.exc import DBAPIError

from skep.errors import ConfigurationError, InvalidInput, SkepError, Unavailable
from skep.streams.host_rules import JobLimits
from skep.streams.sink_url import SinkUrl
from skep.streams.sql.column_kinds import Kind
from skep.streams.sql.connections import CONNECT_SECONDS, brief, open_engine

#: The version of MySQL that has a collation in which blanks at the end count.
NO_PAD_SINCE = (8, 0, 17)


class SqlEngine(ABC):
    """What is the same everywhere."""

    types: ClassVar[dict[Kind, str]]
    #: Longest text that can be part of a key: characters, bytes.
    key_characters: ClassVar[int] = 2000
    key_bytes: ClassVar[int] = 2000
    key_text: ClassVar[str] = "TEXT"
    nul_fits: ClassVar[bool] = True
    #: Whether `A` and `a` are one column.
    folds_names: ClassVar[bool] = True
    identity: ClassVar[str]
    lock_rows: ClassVar[str] = ""
    #: What follows INSERT INTO for a row of which nothing is known.
    empty_row: ClassVar[str] = "DEFAULT VALUES"
    #: Of the job that names the sink; None: a person typed its URL.
    limits: JobLimits | None = None

    @abstractmethod
    def connect(self, place: SinkUrl) -> sa.Engine:
        """Connections to the place; nothing is opened yet."""

    def prepare(self, place: SinkUrl) -> None:  # noqa: B027 - most need nothing
        """Before the first connection."""

    def table_options(self, connection: sa.Connection) -> str:  # noqa: ARG002 - most need none
        """What follows the columns of a new table."""
        return ""

    def begin(self, connection: sa.Connection) -> None:  # noqa: B027 - most need nothing
        """Start a transaction that writes."""

    def kind_of_column(self, kind: sa.types.TypeEngine[Any]) -> Kind:
        """What a column that is there can take."""
        if isinstance(kind, sa.Boolean):
            return Kind.BOOL
        if isinstance(kind, sa.BigInteger):
            return Kind.INT
        if isinstance(kind, sa.Double):
            return Kind.FLOAT
        if isinstance(kind, sa.JSON):
            return Kind.JSON
        return Kind.TEXT if isinstance(kind, sa.String) else Kind.OTHER

    @abstractmethod
    def insert(self, table: sa.TableClause) -> Any:
        """An INSERT that can have a rule for a key that is there."""

    def update_on(self, insert: Any, keys: list[str], others: list[str]) -> Any:
        """The same INSERT, as an update where the key is there."""
        if not others:
            return insert.on_conflict_do_nothing(index_elements=keys)
        return insert.on_conflict_do_update(
            index_elements=keys, set_={name: insert.excluded[name] for name in others}
        )

    def widen(self, connection: sa.Connection, table: str, column: str, kind: Kind) -> None:
        """Change a column's type and keep its values; names come quoted."""
        raise NotImplementedError

    def code(self, error: DBAPIError) -> Any:
        raise NotImplementedError

    def explain(self, error: DBAPIError, where: str) -> SkepError:
        """The error for the caller of a sink."""
        # What a server of a job says is for its log, not for viewers of alerts.
        said = f"{where}: {_first_line(error) if self.limits is None else brief(error)}"
        if error.connection_invalidated or self.is_away(error):
            return Unavailable(said)
        if isinstance(error, sa.exc.ProgrammingError) or self.is_wrong(error):
            return ConfigurationError(said)
        return InvalidInput(said)

    def is_away(self, error: DBAPIError) -> bool:
        raise NotImplementedError

    def is_wrong(self, error: DBAPIError) -> bool:
        """The place will not get better by itself."""
        raise NotImplementedError


class SqliteEngine(SqlEngine):
    types: ClassVar = {
        Kind.BOOL: "BOOLEAN",
        Kind.INT: "BIGINT",
        Kind.FLOAT: "DOUBLE",
        Kind.TEXT: "TEXT",
        Kind.JSON: "TEXT",
    }
    identity = "INTEGER PRIMARY KEY"
    AWAY: ClassVar = {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_PROTOCOL,
    }
    BAD_DATA: ClassVar = {
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_CONSTRAINT,
    }

    def prepare(self, place: SinkUrl) -> None:
        try:
            Path(place.path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{place.path}: {error.strerror}") from error

    def connect(self, place: SinkUrl) -> sa.Engine:
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=place.path),
            connect_args={"timeout": CONNECT_SECONDS, "isolation_level": None},
        )
        sa.event.listen(engine, "connect", _prepare_sqlite)
        return engine

    def begin(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def insert(self, table: sa.TableClause) -> Any:
        return sqlite_dialect.insert(table)

    def widen(self, connection: sa.Connection, table: str, column: str, kind: Kind) -> None:
        # SQLite cannot change a type: a new column takes the old one's place.
        fresh = '"skep widened"'
        text = f"CAST({column} AS {self.types[kind]})"
        if kind is Kind.TEXT:
            text = (
                f"CASE WHEN typeof({column}) = 'integer' AND {column} IN (0, 1) AND "
                f"{self._is_bool(connection, table, column)} THEN "
                f"CASE {column} WHEN 1 THEN 'true' ELSE 'false' END ELSE {text} END"
            )
        for step in (
            f"ALTER TABLE {table} ADD COLUMN {fresh} {self.types[kind]}",
            f"UPDATE {table} SET {fresh} = {text}",  # noqa: S608 - quoted names only
            f"ALTER TABLE {table} DROP COLUMN {column}",
            f"ALTER TABLE {table} RENAME COLUMN {fresh} TO {column}",
        ):
            connection.exec_driver_sql(step)

    def _is_bool(self, connection: sa.Connection, table: str, column: str) -> str:
        rows = connection.exec_driver_sql(f"PRAGMA table_info({table})")
        types = {str(row[1]).casefold(): row[2] for row in rows}
        name = column[1:-1].replace('""', '"').casefold()
        return "1" if types.get(name) == "BOOLEAN" else "0"

    def code(self, error: DBAPIError) -> Any:
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF

    def is_away(self, error: DBAPIError) -> bool:
        return self.code(error) in self.AWAY

    def is_wrong(self, error: DBAPIError) -> bool:
        return self.code(error) not in self.BAD_DATA and not isinstance(
            error, sa.exc.DataError | sa.exc.InterfaceError
        )


class PostgresEngine(SqlEngine):
    types: ClassVar = {
        Kind.BOOL: "BOOLEAN",
        Kind.INT: "BIGINT",
        Kind.FLOAT: "DOUBLE PRECISION",
        Kind.TEXT: "TEXT",
        Kind.JSON: "JSONB",
    }
    nul_fits = False
    folds_names = False
    identity = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    lock_rows = " FOR UPDATE"
    #: Classes of SQLSTATE: connection, transaction undone, resources, in use, operator.
    AWAY: ClassVar = ("08", "40", "53", "55", "57", "58", "25")
    HOPELESS: ClassVar = ("authentication failed", "does not exist", "no pg_hba.conf entry")

    def connect(self, place: SinkUrl) -> sa.Engine:
        url = sa.make_url(place.url)
        return open_engine(url, self.limits, pool_size=1, max_overflow=1, pool_pre_ping=True)

    def insert(self, table: sa.TableClause) -> Any:
        return postgresql.insert(table)

    def widen(self, connection: sa.Connection, table: str, column: str, kind: Kind) -> None:
        target = self.types[kind]
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {target} USING {column}::{target}"
        )

    def code(self, error: DBAPIError) -> Any:
        return getattr(error.orig, "sqlstate", None) or ""

    def is_away(self, error: DBAPIError) -> bool:
        code = self.code(error)
        if not code:  # it did not come so far as to get an answer
            return isinstance(error, sa.exc.OperationalError) and not self.is_wrong(error)
        return str(code).startswith(self.AWAY)

    def is_wrong(self, error: DBAPIError) -> bool:
        code = str(self.code(error))
        return code.startswith(("28", "3D", "42")) or (
            not code and any(text in str(error.orig) for text in self.HOPELESS)
        )


class MysqlEngine(SqlEngine):
    types: ClassVar = {
        Kind.BOOL: "BOOLEAN",
        Kind.INT: "BIGINT",
        Kind.FLOAT: "DOUBLE",
        Kind.TEXT: "LONGTEXT",
        Kind.JSON: "LONGTEXT",
    }
    key_characters = 700
    key_bytes = 2800
    key_text = "VARCHAR(700)"
    identity = "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY"
    lock_rows = " FOR UPDATE"
    empty_row = "() VALUES ()"
    #: Too many connections, shutdown, network, lock wait, deadlock, killed, read-only, full.
    AWAY: ClassVar = {
        *range(2000, 3000),
        *(1040, 1053, 1077, 1080, 1152, 1153, 1156, 1158, 1159, 1160, 1161, 1184, 1203, 1205),
        *(1213, 1290, 1317, 1836, 1927, 1969, 1021, 1037, 1041, 1114, 1129, 0),
    }
    WRONG: ClassVar = {1044, 1045, 1049, 1142, 1143, 1130, 1146, 1227, 1698}

    def connect(self, place: SinkUrl) -> sa.Engine:
        url, pool = sa.make_url(place.url), {"pool_size": 1, "max_overflow": 1}
        utf8 = {"charset": "utf8mb4"}
        engine = open_engine(url, self.limits, utf8, **pool, pool_pre_ping=True)
        sa.event.listen(engine, "connect", _prepare_mysql)
        return engine

    def table_options(self, connection: sa.Connection) -> str:
        """A collation for which `a`, `A`, `á` and `a ` are four keys; each has its own."""
        dialect: Any = connection.dialect
        if dialect.is_mariadb:
            collation = "utf8mb4_nopad_bin"
        elif dialect.server_version_info >= NO_PAD_SINCE:
            collation = "utf8mb4_0900_bin"
        else:
            collation = "utf8mb4_bin"
        return f" CHARACTER SET utf8mb4 COLLATE {collation}"

    def kind_of_column(self, kind: sa.types.TypeEngine[Any]) -> Kind:
        if isinstance(kind, mysql.TINYINT):  # the only trace that BOOLEAN leaves
            return Kind.BOOL
        return super().kind_of_column(kind)

    def insert(self, table: sa.TableClause) -> Any:
        return mysql.insert(table)

    def update_on(self, insert: Any, keys: list[str], others: list[str]) -> Any:
        changed = others or keys[:1]
        return insert.on_duplicate_key_update({name: insert.inserted[name] for name in changed})

    def widen(self, connection: sa.Connection, table: str, column: str, kind: Kind) -> None:
        connection.exec_driver_sql(f"ALTER TABLE {table} MODIFY COLUMN {column} {self.types[kind]}")

    def code(self, error: DBAPIError) -> Any:
        first = next(iter(getattr(error.orig, "args", ())), 0)
        return first if isinstance(first, int) else 0

    def is_away(self, error: DBAPIError) -> bool:
        return not isinstance(error, sa.exc.DataError | sa.exc.IntegrityError) and (
            self.code(error) in self.AWAY
        )

    def is_wrong(self, error: DBAPIError) -> bool:
        return self.code(error) in self.WRONG


def engine_for(scheme: str) -> SqlEngine:
    """By the scheme of a URL."""
    if scheme == "sqlite":
        return SqliteEngine()
    return PostgresEngine() if scheme.startswith("postgres") else MysqlEngine()


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _prepare_mysql(connection: Any, _record: object) -> None:
    """Without strict mode MySQL cuts what does not fit, and says nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'")


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0][:300]
