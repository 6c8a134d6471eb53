"""MariaDB and MySQL: servers whose DDL commits at once, without partial indexes. Run by centers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql as types
from sqlalchemy.exc import DBAPIError

from skep.errors import SkepError, StoreDown, TooLarge
from skep.model.filter.checked import Match, Pattern
from skep.store.sql.engine import server_sessions
from skep.store.sql.engine.dialect import ColumnKind, Dialect, need_driver
from skep.store.sql.engine.dump_programs import run_program
from skep.store.sql.engine.row_inserts import Row
from skep.store.sql.engine.running_counts import Sums, flat, statement
from skep.store.sql.engine.text_matching import (
    Expression,
    TextMatching,
    Truth,
    either_case,
    next_text,
)


class MysqlText(TextMatching):
    """`=` ignores spaces at the end, so that bytes are compared as well. `lower` folds every
    letter, so that a regular expression with both cases of each ASCII letter is used. LIKE on
    an index misses control characters and letters above U+FFFF, so that a prefix is a range."""

    finds_prefixes = True

    def one_of(self, column: Expression, texts: Sequence[str]) -> Truth:
        exact = sa.cast(column, sa.LargeBinary).in_([text.encode() for text in texts])
        return sa.and_(super().one_of(column, texts), exact)

    def _starts(self, column: Expression, text: str) -> Truth:
        # The shortest text sorts as if spaces followed it: the lowest one that can follow is NUL.
        found, after = [column >= f"{text}\0"], next_text(text)
        if after is not None:
            found.append(column < after)
        octets = text.encode()
        same = sa.func.left(sa.cast(column, sa.LargeBinary), len(octets)) == octets
        return sa.and_(*found, same)

    def fits(self, column: Expression, pattern: Pattern) -> Truth:
        if not pattern.fold or pattern.match is Match.ANY:
            return super().fits(column, pattern)
        begin = r"\A" if pattern.match in {Match.WHOLE, Match.STARTS} else ""
        end = r"\z" if pattern.match in {Match.WHOLE, Match.ENDS} else ""
        expression = f"{begin}{either_case(pattern.text)}{end}"
        return sa.collate(column, "utf8mb4_bin").regexp_match(expression)


class MysqlDialect(Dialect):
    """MariaDB 10.6+ and MySQL 8: both know SKIP LOCKED."""

    name = "mysql"
    transactional_ddl = False
    jumps_in_groups = True
    duplicate_key_updates = True
    schemes = ("mysql", "mariadb")
    engine_names = ("mysql", "mariadb")
    COLLISIONS = frozenset({1020, 1205, 1213})
    FULL = frozenset({1021, 1114})
    UNWRITABLE = frozenset({3, 28, 1036, 1290})
    DAMAGED = frozenset({1194})
    text = MysqlText()
    dump_file = "store.sql"
    PACKET_TOO_LARGE: ClassVar[int] = 1153

    def engine(self, url: sa.URL) -> sa.Engine:
        need_driver("pymysql", "mysql")
        return sa.create_engine(
            url.set(drivername="mysql+pymysql").update_query_dict({"charset": "utf8mb4"}),
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={
                "connect_timeout": 5,
                "read_timeout": 50,
                "write_timeout": 50,
                "init_command": _session(),
            },
        )

    def commit_with(self, connection: sa.Connection, everything: Sequence[Sums]) -> None:
        if getattr(connection.dialect, "is_mariadb", False):
            _commit_on_mariadb(connection, everything)
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

    def column_type(self, kind: ColumnKind, length: int) -> Any:
        # The server would take character set and comparison from the database's defaults, which
        # can be Latin-1 and lenient.
        exact = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
        match kind:
            case ColumnKind.NAME:
                return types.VARCHAR(length, **exact)
            case ColumnKind.LONG_TEXT:
                return types.MEDIUMTEXT(**exact)
            case ColumnKind.BYTES:
                return types.LONGBLOB()
            case ColumnKind.DIGEST:
                return types.BINARY(length)
            case ColumnKind.BIG_ID:
                return None

    def dump(self, url: sa.URL, target: Path) -> None:
        options = ("--single-transaction", "--no-tablespaces", "--hex-blob", "--skip-comments")
        _run("mariadb-dump", url, *options, f"--result-file={target}")

    def load(self, url: sa.URL, source: Path) -> None:
        _run("mariadb", url, source=source)

    def skip_numbers(self, connection: sa.Connection, table: str, column: str, gap: int) -> None:
        last = connection.exec_driver_sql(f"SELECT MAX({column}) FROM {table}").scalar() or 0  # noqa: S608
        begin = max(int(last), _next_number(connection, table)) + gap
        connection.exec_driver_sql(f"ALTER TABLE {table} AUTO_INCREMENT = {begin}")


def _session() -> str:
    """The first statement of each connection. MySQL, which has no timeout for an idle
    transaction, reads the rest as a comment."""
    idle, lock = server_sessions.IDLE_SECONDS, server_sessions.LOCK_SECONDS
    return (
        f"SET SESSION innodb_lock_wait_timeout = {lock}, SESSION net_write_timeout = 20"
        f" /*M!100300 , SESSION idle_write_transaction_timeout = {idle}"
        f" , SESSION idle_transaction_timeout = {idle} */"
    )


def _commit_on_mariadb(connection: sa.Connection, everything: Sequence[Sums]) -> None:
    """One compound statement; the protocol's multi-statements stay off."""
    if not everything:
        return
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        written = [
            cursor.mogrify(statement(sums, len(sums.rows), "%s", mysql=True), flat(sums))
            for sums in everything
        ]
    message = f"BEGIN NOT ATOMIC {'; '.join(written)}; COMMIT; END"
    connection.exec_driver_sql(message.replace("%", "%%"))


def _next_number(connection: sa.Connection, table: str) -> int:
    query = sa.text(
        "SELECT auto_increment FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name = :table"
    )
    return int(connection.execute(query, {"table": table}).scalar() or 0)


def _run(program: str, url: sa.URL, *options: str, source: Path | None = None) -> None:
    place = [f"--host={url.host or '127.0.0.1'}", f"--port={url.port or 3306}"]
    place += ["--protocol=TCP", f"--user={url.username or 'root'}"]
    password = {"MYSQL_PWD": str(url.password)} if url.password else {}
    words = ["--no-defaults", *place, *options, str(url.database)]
    run_program(program, "mariadb-client", words, password, source)
