"""Every database that a store can use. Run by centers only.

A new database is a file beside this one and a line in `DIALECTS`.
"""

from __future__ import annotations

from functools import cache

import sqlalchemy as sa

from skep.errors import ConfigurationError
from skep.store.sql.engine.dialect import Dialect
from skep.store.sql.engine.dialects.mysql import MysqlDialect
from skep.store.sql.engine.dialects.postgresql import PostgresDialect
from skep.store.sql.engine.dialects.sqlite import SqliteDialect

DIALECTS: tuple[Dialect, ...] = (SqliteDialect(), PostgresDialect(), MysqlDialect())


def dialect_for(url: sa.URL) -> Dialect:
    """The dialect for the URL's scheme; raises ConfigurationError for an unknown scheme."""
    scheme = url.drivername.partition("+")[0]
    for dialect in DIALECTS:
        if scheme in dialect.schemes:
            return dialect
    *others, last = (name for dialect in DIALECTS for name in dialect.schemes)
    raise ConfigurationError(
        f"store.url: {scheme!r} is not a known scheme; use {', '.join(others)} or {last}"
    )


@cache
def dialect_named(engine: str) -> Dialect:
    """The dialect of an engine, by `Dialect.name` or by SQLAlchemy's name."""
    return next(one for one in DIALECTS if engine in {one.name, *one.engine_names})
