"""Sessions on a database server: their timeouts, and the translation of driver errors. The
dialects of servers use both.

A center that freezes or vanishes must not hold locks: the server ends a transaction that has
been idle for `IDLE_SECONDS`, and detects a client that does not acknowledge. A transaction that
the server ended is rolled back; `Database` retries or reports it. Run by centers only.
"""

from __future__ import annotations

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
