"""Skips numbers in a restored store, before a center opens it. Blocking.

Agents and spiders may still hold work that they got after the backup. Its numbers would be
used a second time, and a late report would settle another request. So numbers continue far
after all numbers in use, and every fencing token in use becomes stale.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.errors import StoreDown
from skep.model.states import CLAIMABLE, BlockState
from skep.store.sql.engine.dialect import dialect_for
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import requests
from skep.store.sql.schema.runs import drivers, items, runs

#: More than the leases of one block between two backups; tokens have 31 bits.
TOKENS = 2**20
#: More than the rows created between two backups; ids have 63 bits.
ROWS = 1_000_000_000
_NUMBERED = ((runs, "no"), (requests, "id"), (blocks, "id"), (items, "id"))


def leave_gaps(url: str) -> None:
    """Raises StoreDown. A second call makes the gap larger."""
    made = sa.make_url(url)
    engine = dialect_for(made).engine(made)
    try:
        with engine.begin() as connection:
            _fence(connection)
            for table, column in _NUMBERED:
                _skip(connection, table.name, column)
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"cannot write to the restored store: {error.orig}") from error
    finally:
        engine.dispose()


def _fence(connection: sa.Connection) -> None:
    open_ones = blocks.c.state.in_([int(state) for state in (*CLAIMABLE, BlockState.USING)])
    connection.execute(sa.update(blocks).where(open_ones).values(token=blocks.c.token + TOKENS))
    connection.execute(sa.update(drivers).values(token=drivers.c.token + TOKENS))


def _skip(connection: sa.Connection, table: str, column: str) -> None:
    kind = connection.dialect.name
    if kind == "sqlite":
        _skip_in_sqlite(connection, table)
    elif kind == "postgresql":
        sequence = f"pg_get_serial_sequence('{table}', '{column}')"
        connection.exec_driver_sql(f"SELECT setval({sequence}, nextval({sequence}) + {ROWS})")
    else:
        last = connection.exec_driver_sql(f"SELECT MAX({column}) FROM {table}").scalar() or 0  # noqa: S608
        begin = max(int(last), _next_in_mysql(connection, table)) + ROWS
        connection.exec_driver_sql(f"ALTER TABLE {table} AUTO_INCREMENT = {begin}")


def _skip_in_sqlite(connection: sa.Connection, table: str) -> None:
    change = f"UPDATE sqlite_sequence SET seq = seq + {ROWS} WHERE name = '{table}'"  # noqa: S608
    if not connection.exec_driver_sql(change).rowcount:
        row = f"INSERT INTO sqlite_sequence (name, seq) VALUES ('{table}', {ROWS})"  # noqa: S608
        connection.exec_driver_sql(row)


def _next_in_mysql(connection: sa.Connection, table: str) -> int:
    query = sa.text(
        "SELECT auto_increment FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name = :table"
    )
    return int(connection.execute(query, {"table": table}).scalar() or 0)
