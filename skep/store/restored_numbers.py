"""Skips numbers in a restored store, before a center opens it. Blocking.

Agents and spiders may still hold work that they got after the backup. Its numbers would be
used a second time, and a late report would settle another request. So numbers continue far
after all numbers in use, and every fencing token in use becomes stale.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.errors import StoreDown
from skep.model.states import CLAIMABLE, BlockState
from skep.store.sql.engine.dialects.registry import dialect_for
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.operations import operations
from skep.store.sql.schema.pool import pool
from skep.store.sql.schema.requests import requests
from skep.store.sql.schema.runs import drivers, items, runs

#: More than the leases of one block between two backups; tokens have 31 bits.
TOKENS = 2**20
#: More than the rows created between two backups; ids have 63 bits.
ROWS = 1_000_000_000
_NUMBERED = (
    *((runs, "no"), (requests, "id"), (blocks, "id"), (items, "id")),
    *((operations, "no"), (pool, "id")),
)


def leave_gaps(url: str) -> None:
    """Raises StoreDown. A second call makes the gap larger."""
    made = sa.make_url(url)
    dialect = dialect_for(made)
    engine = dialect.engine(made)
    try:
        with engine.begin() as connection:
            _fence(connection)
            for table, column in _NUMBERED:
                dialect.skip_numbers(connection, table.name, column, ROWS)
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"cannot write to the restored store: {error.orig}") from error
    finally:
        engine.dispose()


def _fence(connection: sa.Connection) -> None:
    open_ones = blocks.c.state.in_([int(state) for state in (*CLAIMABLE, BlockState.USING)])
    connection.execute(sa.update(blocks).where(open_ones).values(token=blocks.c.token + TOKENS))
    connection.execute(sa.update(drivers).values(token=drivers.c.token + TOKENS))
    connection.execute(sa.update(pool).values(token=pool.c.token + TOKENS))
