"""PostgreSQL: a server with COPY, arrays as parameters and partial indexes. Run by centers only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles

from skep.model.states import RequestState
from skep.store.sql.engine import server_sessions
from skep.store.sql.engine.dialect import Dialect, need_driver
from skep.store.sql.engine.dump_programs import run_program
from skep.store.sql.engine.row_inserts import (
    Inserted,
    Row,
    check_lengths,
    postgres_insert,
    postgres_type,
)
from skep.store.sql.engine.running_counts import Sums, flat, statement
from skep.store.sql.engine.server_sessions import translated
from skep.store.sql.engine.text_matching import by_bytes

_KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}
#: For a session that migrates.
_WITHOUT_LIMITS = "SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0"


@compiles(by_bytes, "postgresql")
def _collated(element: by_bytes, compiler: Any, **more: Any) -> str:
    return f'({compiler.process(element.clauses, **more)} COLLATE "C")'


def prepare_postgres(driver: Any, _record: object) -> None:
    """Called with each new connection."""
    settings = {
        "idle_in_transaction_session_timeout": f"{server_sessions.IDLE_SECONDS}s",
        "lock_timeout": f"{server_sessions.LOCK_SECONDS}s",
        **_KEEPALIVES,
    }
    with driver.cursor() as cursor:
        cursor.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
    driver.commit()


class PostgresDialect(Dialect):
    """COPY and unnest: a thousand rows are one round trip."""

    name = "postgresql"
    feeds_statements = True
    partial_indexes = True
    guesses_independence = True
    schemes = ("postgresql", "postgres")
    engine_names = ("postgresql",)
    reading: ClassVar[dict[str, str]] = {"isolation_level": "AUTOCOMMIT"}
    COLLISIONS = frozenset({"40P01", "40001", "55P03"})
    FULL = frozenset({"53100"})
    UNWRITABLE = frozenset({"25006"})
    DAMAGED = frozenset({"XX001", "XX002"})
    dump_file = "store.pgdump"
    #: Key of the migration lock among the database's advisory locks; any number works.
    MIGRATION_LOCK: ClassVar[int] = 5_143_657

    def engine(self, url: sa.URL) -> sa.Engine:
        need_driver("psycopg", "postgres")
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
        sa.event.listen(engine, "connect", prepare_postgres)
        return engine

    def commit_with(self, connection: sa.Connection, everything: Sequence[Sums]) -> None:
        _commit_with(connection, everything)

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
            translated(connection, statement),
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
        by_column = tuple(list(values) for values in zip(*rows, strict=True))
        statement = postgres_insert(table, columns)
        return int(connection.exec_driver_sql(statement, by_column).rowcount)

    def insert_spanning(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> Inserted:
        if not rows:
            return Inserted(0, 0, 0)
        check_lengths(table, columns, rows)
        by_column = tuple(list(values) for values in zip(*rows, strict=True))
        statement = postgres_insert(table, columns, spanning=True)
        return Inserted(*connection.exec_driver_sql(statement, by_column).one())

    def add_up(
        self, connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: list[Row]
    ) -> None:
        *keys, n = columns
        arrays = ", ".join(f"%s::{postgres_type(table, column)}[]" for column in columns)
        connection.exec_driver_sql(
            f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT * FROM unnest({arrays})"  # noqa: S608
            f" ON CONFLICT ({', '.join(keys)})"
            f" DO UPDATE SET {n} = {table.name}.{n} + excluded.{n}",
            tuple(list(values) for values in zip(*rows, strict=True)),
        )

    def lock_for_migration(self, connection: sa.Connection) -> None:
        connection.detach()  # the lock belongs to the connection and must end with it
        connection.exec_driver_sql(_WITHOUT_LIMITS)
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({self.MIGRATION_LOCK})")

    def _code(self, error: DBAPIError) -> object:
        return getattr(error.orig, "sqlstate", None)

    def dump(self, url: sa.URL, target: Path) -> None:
        _run("pg_dump", url, "--format=custom", f"--file={target}")

    def load(self, url: sa.URL, source: Path) -> None:
        options = ("--no-owner", "--exit-on-error", "--single-transaction", str(source))
        _run("pg_restore", url, *options)

    def skip_numbers(self, connection: sa.Connection, table: str, column: str, gap: int) -> None:
        sequence = f"pg_get_serial_sequence('{table}', '{column}')"
        connection.exec_driver_sql(f"SELECT setval({sequence}, nextval({sequence}) + {gap})")


def _commit_with(connection: sa.Connection, everything: Sequence[Sums]) -> None:
    """One simple query: the server has read the whole message before it runs any of it."""
    import psycopg

    if not everything:
        return
    driver: Any = connection.connection.driver_connection
    cursor = psycopg.ClientCursor(driver)
    written = [
        cursor.mogrify(statement(sums, len(sums.rows), "%s"), flat(sums)) for sums in everything
    ]
    message = "; ".join([*written, "COMMIT"])
    with translated(connection, message), cursor:
        cursor.execute(message.encode(), prepare=False)


def _run(program: str, url: sa.URL, *options: str) -> None:
    made = url.set(drivername="postgresql")
    password = {"PGPASSWORD": str(made.password)} if made.password else {}
    plain = made._replace(password=None).render_as_string(hide_password=False)
    run_program(program, "postgresql-client", [f"--dbname={plain}", *options], password)
