"""Databases of the commit before: what they hold is there after the upgrade."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.delivery import Delivery
from skep.model.run import RunSettings
from skep.store.sql.engine.migrate import upgrade
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


async def test_runs_of_before_have_no_named_places(store_url: str) -> None:
    """H1: a run of 0015 is read, and takes places that a person names now."""
    settings = msgspec.msgpack.encode(RunSettings(retries=3))
    row = (
        "INSERT INTO runs (id, job, state, settings, created_at)"
        " VALUES ('r', 'quotes', 'running', :settings, :now)"
    )
    database_at(store_url, "0015", row, now=NOW, settings=settings)
    store = SqlStore(store_url)
    await store.open()
    try:
        assert (await store.runs.get("r")).named == ()
        await store.runs.name_places("r", ["127.0.0.1:80"])
        found = (await store.runs.settings_of(["r"]))["r"]
        assert (found.named, found.retries) == (("127.0.0.1:80",), 3)
    finally:
        await store.close()


async def test_tries_for_robots_txt_begin_with_none(store_url: str) -> None:
    """H3: a database of 0017 gets the table, with no tries in it."""
    database_at(store_url, "0017")
    store = SqlStore(store_url)
    await store.open()
    try:
        counted = sa.text("SELECT count(*) FROM host_probes")
        with store.database.engine.connect() as connection:
            assert connection.execute(counted).scalar() == 0
    finally:
        await store.close()


async def test_deliveries_begin_for_runs_that_are_under_way(store_url: str) -> None:
    """E5: a store of 0016 with an open run gets deliveries and refused items."""
    row = (
        "INSERT INTO job_runs (run, job, fire_key, revision, at, open, fed, holder, held_until,"
        " starts, outcome, log, lease)"
        " VALUES ('r', 'quotes', 'k', 1, :now, 1, 1, 'old', :now, 1, '', '', 1)"
    )
    database_at(store_url, "0016", row, now=NOW)
    store = SqlStore(store_url)
    await store.open()
    try:
        assert await store.deliveries.of("r") == []
        await store.deliveries.open([Delivery("r", "s", "quotes", "redis://h/0")], NOW)
        (held,) = await store.deliveries.claim("new", NOW, NOW + 10, 5)
        await store.deliveries.reject(held.proof, 1, "no", NOW)
        assert len(await store.deliveries.rejected("r", 0, 5)) == 1
    finally:
        await store.close()
