"""The store contract on SQLite, PostgreSQL and MariaDB, and what is theirs alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.model.block import Held
from skep.model.fleet.agent import Registration, Vitals
from skep.model.fleet.token import FoundToken
from skep.store.sql.engine.database import Tx
from skep.store.sql.hosts import holds
from skep.store.sql.schema import metadata
from skep.store.sql.schema.hosts import site_holds
from skep.store.sql.store import SqlStore
from skep.testing import servers
from skep.testing.conformance.store.ground import LATER, NOW, assert_accounted, new_run, rows
from skep.testing.conformance.store.leasing import leased, leased_one
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement
from skep.testing.conformance.store.suite import StoreConformance


@pytest.fixture(scope="module")
def used_databases() -> dict[str, str]:
    """A database for each server, made once: a new one for each test takes too long."""
    return {}


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store_url(
    request: pytest.FixtureRequest, tmp_path: Path, used_databases: dict[str, str]
) -> str:
    """An empty database, or one that a test before this one has used."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'skep.db'}"
    if request.param not in used_databases:
        name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
        server: servers.Database = request.getfixturevalue(name)
        used_databases[request.param] = server.fresh_database()
    return used_databases[request.param]


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[SqlStore]:
    opened = SqlStore(store_url)
    await opened.open()
    await opened.database.write(empty)
    yield opened
    await opened.close()


def empty(tx: Tx) -> None:
    for table in metadata.sorted_tables:
        tx.execute(sa.delete(table))


@pytest.fixture
async def other_store(store: SqlStore, store_url: str) -> AsyncIterator[SqlStore]:
    opened = SqlStore(store_url)
    await opened.open()
    yield opened
    await opened.close()


class TestSqlStore(StoreConformance):
    """One suite, three databases."""


TAMPERING = {
    "a request is gone": "DELETE FROM requests WHERE id = (SELECT n FROM (SELECT MIN(id) AS n"
    " FROM requests) AS first)",
    "a running count is off": "UPDATE tallies SET n = n + 1 WHERE state = 4",
    "a block ended with requests in it": "UPDATE blocks SET state = 4 WHERE state = 2",
    "a request is in no state": "UPDATE requests SET state = 99 WHERE state = 5",
    "a request is in no block": "UPDATE requests SET block = NULL WHERE state = 1",
}


@pytest.mark.parametrize("how", TAMPERING)
async def test_the_audit_finds_what_was_tampered_with(store: SqlStore, how: str) -> None:
    """A7: the ledger is able to fail."""
    block = await leased_one(store, 6)
    numbers = ids(block)
    await settle(store, settlement(block, done(numbers[:2]) + failed(numbers[2:4]), final=False))
    await assert_accounted(store)
    with store.database.engine.connect() as connection:
        if store.database.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(TAMPERING[how])
        connection.commit()
    with pytest.raises(AssertionError):
        await assert_accounted(store)
    read, audit = await store.ledgers.read(), await store.ledgers.audit()
    assert read != audit or audit.unaccounted


async def test_blocks_count_their_open_requests(store: SqlStore) -> None:
    block = await leased_one(store, 6)
    await settle(store, settlement(block, done(ids(block)[:2]), final=False))
    query = sa.text(
        "SELECT COUNT(*) FROM blocks b WHERE b.state IN (1, 2, 16) AND b.size - 2 <>"
        " (SELECT COUNT(*) FROM requests r WHERE r.block = b.id AND r.state = 1)"
    )
    assert await store.database.read(lambda c: c.execute(query).scalar()) == 0


async def test_rows_that_come_alone_are_stored(store: SqlStore) -> None:
    """Fault 23: a bulk insert is kept although nothing else was in its transaction."""

    def insert(tx: Tx) -> None:
        row = (b"x" * 32, "viewer", "somebody", 1.0, 0)
        columns = ("digest", "role", "subject", "created_at", "revoked")
        tx.dialect.insert_many(tx.connection, metadata.tables["tokens"], columns, [row])

    await store.database.write(insert)
    assert await store.tokens.find(b"x" * 32) == FoundToken("viewer", "somebody")


@pytest.mark.parametrize("store_url", ["postgresql", "mariadb"], indirect=True)
async def test_a_host_whose_row_is_deleted_meanwhile_is_claimed(
    store: SqlStore, other_store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """politeness: a center reads a row without a block, another center deletes it, and the first
    one claims the host: the claim is a row again, so that no third block gets the host."""
    name = "host.example"
    await store.database.write(lambda tx: holds.watch(tx, {name: NOW}))
    read = holds._holds
    deletions: list[int] = []

    def read_then_delete(tx: Tx, hosts: Collection[str]) -> dict[str, tuple[int | None, float]]:
        found = read(tx, hosts)
        if not deletions:
            with other_store.database.engine.connect() as elsewhere:
                deletions.append(elsewhere.execute(sa.delete(site_holds)).rowcount)
                elsewhere.commit()
        return found

    monkeypatch.setattr(holds, "_holds", read_then_delete)

    def claim(tx: Tx) -> dict[str, float]:
        taken = holds.claim(tx, [holds.Claim(name, LATER, 1.0)])
        holds.give_to(tx, {7: [name]})
        return taken

    assert await store.database.write(claim) == {}
    assert deletions == [1]
    held = await store.database.read(lambda c: holds.held_by(c, [7]))
    assert held == {7: {name: 1.0}}


@pytest.mark.parametrize("store_url", ["postgresql", "mariadb"], indirect=True)
async def test_signs_of_life_wait_for_no_run(store: SqlStore) -> None:
    """C9: another center holds a run, and every write to it waits. Heartbeats do not wait: else a
    thousand agents would seem to be dead."""
    await new_run(store)
    await store.agents.register(Registration("a1", "one"), NOW)
    with store.database.engine.connect() as elsewhere:
        elsewhere.execute(sa.select(metadata.tables["runs"]).with_for_update()).all()
        writing = asyncio.create_task(store.requests.accept("run", rows(3), NOW))
        await asyncio.sleep(0)  # it is with the writer from here on
        assert await store.agents.heartbeat([("a1", Vitals())], NOW + 1) == []
        assert (await store.agents.get("a1")).seen_at == NOW + 1
        assert not writing.done()
        elsewhere.rollback()
    assert (await writing).new == 3


@pytest.mark.parametrize("store_url", ["postgresql", "mariadb"], indirect=True)
async def test_a_renewal_skips_locked_rows(store: SqlStore) -> None:
    """C9: blocks are reported while their agents send heartbeats. Renewals in the order of their
    numbers and reports in another order would wait for each other until the engine ends one."""
    busy, free = await leased(store, 20)
    table = metadata.tables["blocks"]
    with store.database.engine.connect() as elsewhere:
        writing = sa.select(table).where(table.c.id == busy.id).with_for_update()
        elsewhere.execute(writing).all()
        held = [busy.held, free.held, Held(free.id, 77)]
        assert await store.blocks.renew(held, "agent", LATER + 9) == [free.id]
        elsewhere.rollback()
    ends = sa.select(table.c.id, table.c.lease_until)
    found = await store.database.read(lambda c: {row[0]: row[1] for row in c.execute(ends)})
    assert found == {busy.id: LATER, free.id: LATER + 9}
    assert await store.blocks.renew([busy.held], "agent", LATER + 9) == []
