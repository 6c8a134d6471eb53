"""Dumps the whole store into one file, and loads it: by URL, while centers use it. Blocking.

Each dialect does it in its own way; databases on servers need their dump programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from skep.errors import ConfigurationError, StoreDown
from skep.store.sql.engine.dialects.registry import DIALECTS, dialect_for

#: Kind of store: the file name of its dump.
FILES = {dialect.name: dialect.dump_file for dialect in DIALECTS}


def kind_of(url: str) -> str:
    """The name of the database, such as `sqlite`; raises ConfigurationError for an unknown one."""
    return dialect_for(sa.make_url(url)).name


def dump(url: str, target: Path) -> None:
    """Write a consistent copy of all committed data; raises StoreDown."""
    made = sa.make_url(url)
    dialect_for(made).dump(made, target)


def load(url: str, source: Path) -> None:
    """Load into an empty database; raises ConfigurationError if it is not empty, and StoreDown."""
    check_empty(url)
    made = sa.make_url(url)
    dialect_for(made).load(made, source)


def check_empty(url: str) -> None:
    """Raises ConfigurationError for a store that has tables."""
    made = sa.make_url(url)
    dialect = dialect_for(made)
    file = dialect.file(made)
    if file is not None and not file.exists():
        return
    engine = dialect.engine(made)
    try:
        tables = sa.inspect(engine).get_table_names()
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"the store does not answer: {error.orig}") from error
    finally:
        engine.dispose()
    if tables:
        shown = made.render_as_string(hide_password=True)
        raise ConfigurationError(f"{shown} is not empty; restore into an empty database")


def schema_of(url: str) -> str:
    """The schema version of a store; "" when it has none."""
    with _connected(url) as connection:
        query = sa.text("SELECT version_num FROM alembic_version")
        return str(connection.execute(query).scalar() or "")


def committed_segments(url: str) -> dict[str, int]:
    """Committed length of each archive segment that was not deleted."""
    with _connected(url) as connection:
        query = sa.text("SELECT name, committed FROM segments WHERE gone IS NULL")
        return {str(name): int(end) for name, end in connection.execute(query)}


@contextmanager
def _connected(url: str) -> Iterator[sa.Connection]:
    made = sa.make_url(url)
    engine = dialect_for(made).engine(made)
    try:
        with engine.connect() as connection:
            yield connection
    except sa.exc.DBAPIError as error:
        raise StoreDown(f"the store cannot be read: {error.orig}") from error
    finally:
        engine.dispose()
