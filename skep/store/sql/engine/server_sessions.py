"""Sessions on a database server: their timeouts, and the translation of driver errors.

A center that freezes or vanishes must not hold locks: the server ends a transaction that has
been idle for `IDLE_SECONDS`, and detects a client that does not acknowledge. A transaction that
the server ended is rolled back; `Database` retries or reports it. Run by centers only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

#: Maximum seconds that a transaction waits for its center's next statement.
IDLE_SECONDS = 10
#: Maximum seconds that a statement waits for a lock. Longer than `IDLE_SECONDS`, so that the
#: holder is ended first; MariaDB counts whole seconds.
LOCK_SECONDS = 15
_SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    # FULL: an acknowledged commit survives a power cut. NORMAL loses acknowledged rows.
    "PRAGMA synchronous=FULL",
    "PRAGMA busy_timeout=10000",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA cache_size=-32000",
    "PRAGMA temp_store=MEMORY",
)
_POSTGRES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}


def prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Called with each new connection."""
    # The store sends BEGIN itself; the module's automatic transactions are switched off.
    connection.isolation_level = None
    for pragma in _SQLITE_PRAGMAS:
        connection.execute(pragma)


def prepare_postgres(driver: Any, _record: object) -> None:
    """Called with each new connection."""
    settings = {
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
        "lock_timeout": f"{LOCK_SECONDS}s",
        **_POSTGRES,
    }
    with driver.cursor() as cursor:
        cursor.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
    driver.commit()


def without_limits() -> str:
    """For a PostgreSQL session that migrates: without timeouts."""
    return "SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0"


def mysql_session() -> str:
    """The first statement of each connection. MySQL, which has no timeout for an idle
    transaction, reads the rest as a comment."""
    return (
        f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}, SESSION net_write_timeout = 20"
        f" /*M!100300 , SESSION idle_write_transaction_timeout = {IDLE_SECONDS}"
        f" , SESSION idle_transaction_timeout = {IDLE_SECONDS} */"
    )


@contextmanager
def translated(connection: sa.Connection, statement: str) -> Iterator[None]:
    """For calls that bypass SQLAlchemy: raises the driver's errors as SQLAlchemy would."""
    driver: Any = connection.connection.driver_connection
    errors: Any = connection.dialect.dbapi
    try:
        yield
    except errors.Error as error:
        if driver.closed:
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement,
            None,
            error,
            errors.Error,
            connection_invalidated=driver.closed,
            dialect=connection.dialect,
        ) from error
