"""Migrates a database to the schema of this version, at the start of a center.

One center at a time, under a lock of the engine. An empty database on an engine with
transactional DDL gets all tables at once; all others run the Alembic scripts in `migrations/`,
each of which can be run again after a crash. Alembic is imported only when there is something
to do, because the import takes longer than the rest of the start.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import ConfigurationError
from skep.store.sql.engine.database import Database
from skep.store.sql.schema import metadata

#: The newest script in `migrations/versions`; a test compares.
HEAD = "0029"
SCRIPTS = Path(__file__).parents[1] / "migrations"

_version = sa.table("alembic_version", sa.column("version_num"))


def bring_up_to_date(database: Database) -> None:
    """Returns when the schema is up to date; raises StoreDown or ConfigurationError."""
    try:
        with database.engine.connect() as connection:
            if _current(connection) == HEAD:
                return
            database.dialect.lock_for_migration(connection)
            connection.commit()
            _migrate(database, connection)
    except DBAPIError as error:
        raise (database.dialect.explain(error) or error) from error


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = connection.execute(sa.select(_version.c.version_num)).scalar()
    connection.commit()
    return version


def _migrate(database: Database, connection: sa.Connection) -> None:
    current = _current(connection)
    if current == HEAD:  # another center migrated while this one waited for the lock
        return
    if current is not None and current not in known_versions():
        raise ConfigurationError(
            f"the store has schema {current}, newer than this version knows ({HEAD}); upgrade Skep"
        )
    empty = current is None and not sa.inspect(connection).has_table("requests")
    connection.commit()
    if empty and database.dialect.transactional_ddl:
        _create(database, connection)
    else:
        upgrade(database, connection)


def known_versions() -> set[str]:
    """The scripts define their order; their numbers are only names."""
    return {script.name.partition("_")[0] for script in SCRIPTS.glob("versions/[0-9]*.py")}


def _create(database: Database, connection: sa.Connection) -> None:
    with connection.begin():
        database.dialect.begin(connection)
        metadata.create_all(connection)
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS alembic_version"
            " (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
        )
        connection.execute(sa.delete(_version))
        connection.execute(sa.insert(_version).values(version_num=HEAD))


def upgrade(database: Database, connection: sa.Connection, to: str = "head") -> None:
    """Run the scripts on an open connection, in one transaction if the engine supports it."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = connection
    database.dialect.begin(connection)
    command.upgrade(config, to)
    connection.commit()
