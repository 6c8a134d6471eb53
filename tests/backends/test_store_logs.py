"""Log pieces on SQLite, PostgreSQL and MariaDB: the contract, and ids in the order of commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.center.merging import PieceMerger
from skep.logs.center.query import LogQuery
from skep.logs.center.search import LogSearch, SearchBudget
from skep.logs.line_format import encode_entry, make_entry
from skep.model.logs import LogBatch
from skep.runtime.clock import SystemClock
from skep.store.ports.logs import LogPieces
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.logs import log_bodies, log_counter, log_pieces, log_sources, log_sums
from skep.store.sql.store import SqlStore
from skep.testing import servers
from skep.testing.conformance.store.log_pieces import (
    ALL,
    NOW,
    LogPiecesConformance,
    piece,
    source,
)

TABLES = (log_counter, log_sources, log_pieces, log_bodies, log_sums)


@pytest.fixture(scope="module")
def used_databases() -> dict[str, str]:
    return {}


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def log_url(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    used_databases: dict[str, str],
) -> str:
    """One database of each kind for all tests: a new one for each takes too long."""
    kind = request.param
    if kind not in used_databases:
        if kind == "sqlite":
            used_databases[kind] = f"sqlite:///{tmp_path_factory.mktemp('logs') / 'skep.db'}"
        else:
            name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[kind]
            server: servers.Database = request.getfixturevalue(name)
            used_databases[kind] = server.fresh_database()
    return used_databases[kind]


@pytest.fixture
async def store(log_url: str) -> AsyncIterator[SqlStore]:
    opened = SqlStore(log_url)
    await opened.open()
    await opened.database.write(empty)
    yield opened
    await opened.close()


def empty(tx: Tx) -> None:
    for table in TABLES:
        tx.execute(sa.delete(table))


class TestSqlLogPieces(LogPiecesConformance):
    """One suite, three databases."""

    @pytest.fixture
    def log_pieces(self, store: SqlStore) -> LogPieces:
        return store.logs


async def test_ids_grow_in_the_order_of_commits(store: SqlStore, log_url: str) -> None:
    """A reader that has seen an id never finds a smaller one later, with two centers that write."""
    other = store if log_url.startswith("sqlite") else SqlStore(log_url)
    if other is not store:
        await other.open()

    async def write(center: SqlStore, name: str) -> None:
        for number in range(20):
            await center.logs.add([piece(number, number, of=source(name))], NOW)

    writing = asyncio.gather(write(store, "a"), write(other, "b"), write(other, "c"))
    seen: set[int] = set()
    position = 0
    while not writing.done() or position < await store.logs.moment():
        moment = await store.logs.moment()
        found = await store.logs.arrived(ALL, position, moment, moment)
        seen.update(facts.id for facts in found)
        position = moment
    await writing
    everything = await store.logs.newest(ALL, await store.logs.moment(), None, 1000)
    assert len(everything) == 60
    assert seen == {facts.id for facts in everything}
    if other is not store:
        await other.close()


async def test_two_centers_take_the_lines_of_one_source_once(store: SqlStore, log_url: str) -> None:
    """R4: the same batches arrive at two centers, which also merge; each line is stored once."""
    other = SqlStore(log_url)
    await other.open()
    clock = SystemClock()
    centers = [LogIntake(one.logs, clock, IntakeRate()) for one in (store, other)]
    mergers = [PieceMerger(one.logs, clock) for one in (store, other)]
    of = source("spider", "", "run-1")
    for number in range(40):
        lines = encode_entry(make_entry(clock.now(), 20, f"line {number}"))
        batch = LogBatch(of, 1, number, lines)
        await asyncio.gather(*(center.take(batch) for center in centers))
        if number % 20 == 19:
            await asyncio.gather(*(merger.step() for merger in mergers))
    search = LogSearch(other.logs, clock)
    found = await search.search(LogQuery(), "", 1000, SearchBudget())
    assert [line.text for line in found.lines] == [f"line {n}" for n in reversed(range(40))]
    assert await search.follow(LogQuery(), 10**9) == await search.follow(
        LogQuery(), await search.position()
    )
    await other.close()


async def test_progress_of_old_sources_is_forgotten(store: SqlStore) -> None:
    await store.logs.add([piece(of=source("old"))], NOW)
    await store.logs.add([piece(of=source("new"), latest=NOW)], NOW + 100)
    await store.logs.delete_oldest(None, 0, NOW + 50)
    old, new = await store.logs.progress([source("old"), source("new")])
    assert (old.next, new.next) == (0, 10)
