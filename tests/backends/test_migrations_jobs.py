"""Databases of the commit before: what they hold is there after the upgrade."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.store.sql.migrate import upgrade
from skep.store.sql.store import SqlStore

NOW = 1_700_000_000.0


def database_at(url: str, version: str, *statements: str, **values: Any) -> None:
    """A schema of that version with some rows in it."""
    store = SqlStore(url)
    with store.database.engine.connect() as connection:
        upgrade(store.database, connection, version)
        for statement in statements:
            connection.execute(sa.text(statement), values)
        connection.commit()
    store.database.engine.dispose()


async def test_leases_begin_with_the_next_holder(store_url: str) -> None:
    """E2: a run that a center of 0014 holds keeps its holder; the next one has lease 1."""
    row = (
        "INSERT INTO job_runs (run, job, fire_key, revision, at, open, fed, holder, held_until,"
        " starts, outcome, log)"
        " VALUES ('r', 'quotes', 'k', 1, :now, 1, 1, 'old', :until, 2, '', '')"
    )
    database_at(store_url, "0014", row, now=NOW, until=NOW + 15)
    store = SqlStore(store_url)
    await store.open()
    try:
        (renewed,) = await store.job_runs.claim("old", NOW + 5, NOW + 20, 5)
        assert (renewed.lease, renewed.starts, renewed.fed) == (0, 2, True)
        assert await store.job_runs.note(renewed.proof, starts=3)
        (taken,) = await store.job_runs.claim("new", NOW + 21, NOW + 30, 5)
        assert (taken.holder, taken.lease) == ("new", 1)
        assert not await store.job_runs.note(renewed.proof, starts=9)
    finally:
        await store.close()
