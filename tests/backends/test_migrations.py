"""The schema: made at once or by scripts it is the same, and a start that dies resumes."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from skep.errors import ConfigurationError
from skep.store.sql.engine.migrate import HEAD, SCRIPTS, upgrade
from skep.store.sql.schema.columns import metadata
from skep.store.sql.store import SqlStore
from skep.testing.conformance.store.ground import assert_accounted, new_run, rows

#: Opens a store and dies, as by a power cut, just before its n-th statement that changes
#: the schema or notes its version.
DYING_START = """
import asyncio, os, signal, sys
import sqlalchemy as sa
from skep.store.sql.store import SqlStore

url, fatal = sys.argv[1], int(sys.argv[2])
store = SqlStore(url)
seen = 0

@sa.event.listens_for(store.database.engine, "before_cursor_execute")
def die(connection, cursor, statement, *rest):
    global seen
    if statement.lstrip().upper().startswith(("CREATE", "INSERT")):
        seen += 1
        if seen == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    await store.open()
    await store.close()

asyncio.run(main())
"""


def test_head_is_the_newest_script() -> None:
    scripts = ScriptDirectory(str(SCRIPTS))
    assert scripts.get_current_head() == HEAD
    assert len(scripts.get_heads()) == 1


def connect(store: SqlStore) -> sa.Connection:
    return store.database.engine.connect()


def snapshot(connection: sa.Connection) -> dict[str, Any]:
    """The schema in the engine's own words."""
    name = connection.dialect.name
    if name == "sqlite":
        query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        return {key: _even(sql) for key, sql in connection.exec_driver_sql(query)}
    if name == "postgresql":
        return {what: _rows(connection, query) for what, query in _POSTGRES.items()}
    tables = [row[0] for row in connection.exec_driver_sql("SHOW TABLES")]
    return {t: _keys_sorted(_rows(connection, f"SHOW CREATE TABLE {t}")[0][1]) for t in tables}


_POSTGRES = {
    "columns": "SELECT table_name, ordinal_position, column_name, data_type, is_nullable,"
    " character_maximum_length, column_default FROM information_schema.columns"
    " WHERE table_schema = 'public' ORDER BY 1, 2",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "rules": "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace ORDER BY 1",
}


def _even(sql: str) -> str:
    """SQLite keeps the words as they were typed; ADD COLUMN types its own spaces."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split()))


def _rows(connection: sa.Connection, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.exec_driver_sql(query)]


def _keys_sorted(text: str) -> list[str]:
    return sorted(line.strip().rstrip(",") for line in text.splitlines())


def wipe(store: SqlStore) -> None:
    with connect(store) as connection:
        metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE IF EXISTS alembic_version")
        connection.commit()


def test_scripts_and_tables_make_the_same_schema(store_url: str) -> None:
    store = SqlStore(store_url)
    with connect(store) as connection:
        metadata.create_all(connection)
        connection.commit()
        at_once = snapshot(connection)
    wipe(store)
    with connect(store) as connection:
        upgrade(store.database, connection)
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        connection.exec_driver_sql("DROP TABLE alembic_version")
        connection.commit()
        by_scripts = snapshot(connection)
    store.database.engine.dispose()
    assert version == HEAD
    assert by_scripts == at_once
    assert len(metadata.tables) > 10


@pytest.mark.parametrize("fatal", [1, 9, 23])
async def test_a_start_that_dies_while_migrating_resumes(store_url: str, fatal: int) -> None:
    """Fault 45, by SIGKILL; on MariaDB between two tables that are there one by one."""
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", DYING_START, store_url, str(fatal)], timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    store = SqlStore(store_url)
    await store.open()
    try:
        await new_run(store)
        assert (await store.requests.accept("run", rows(3), 1.0)).new == 3
        await assert_accounted(store)
        wanted = {str(index.name) for table in metadata.sorted_tables for index in table.indexes}
        if not store.database.dialect.partial_indexes:
            wanted -= {"requests_again", "requests_failed", "requests_dead_ids"}
            wanted -= {"requests_dead_hosts", "requests_dead_groups"}
            wanted -= {"requests_cancelled", "requests_expired"}
        if store.database.dialect.text.finds_prefixes:
            wanted -= {"jobs_by_name", "jobs_by_state"}
        assert await store.database.read(index_names) == wanted
    finally:
        await store.close()


def index_names(connection: sa.Connection) -> set[str]:
    inspector = sa.inspect(connection)
    found = (index for table in metadata.tables for index in inspector.get_indexes(table))
    return {str(i["name"]) for i in found if not i["unique"]}


async def test_centers_that_start_at_once_all_succeed(store_url: str) -> None:
    stores = [SqlStore(store_url) for _ in range(4)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(store.open() for store in stores))
    await new_run(stores[0])
    for number, store in enumerate(stores):
        accepted = await store.requests.accept("run", rows(10, start=10 * number), 1.0)
        assert accepted.new == 10
    await assert_accounted(stores[-1])
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_start_does_not_keep_the_lock(store_url: str) -> None:
    """The second center starts while the first one is still there."""
    first, second = SqlStore(store_url), SqlStore(store_url)
    await first.open()
    with connect(first) as connection:
        connection.execute(sa.text("DELETE FROM alembic_version"))
        connection.commit()
    async with asyncio.timeout(10):
        await second.open()
    await second.close()
    await first.close()


async def test_a_newer_schema_is_refused(store_url: str) -> None:
    store = SqlStore(store_url)
    await store.open()
    await store.close()
    with connect(store) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.commit()
    store.database.engine.dispose()
    later = SqlStore(store_url)
    with pytest.raises(ConfigurationError, match=r"9999.*newer.*upgrade Skep"):
        await later.open()
    later.database.engine.dispose()
