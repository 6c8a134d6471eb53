"""The store's own machinery: group commit, savepoints, closing, errors as ours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import (
    ConfigurationError,
    DiskFull,
    InvalidInput,
    SkepError,
    StoreDown,
    TooLarge,
    UnknownRun,
)
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.dialects.mysql import MysqlDialect
from skep.store.sql.engine.dialects.registry import dialect_for
from skep.store.sql.engine.dialects.sqlite import SqliteDialect
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.store import SqlStore
from skep.testing.conformance.store.ground import NOW, assert_accounted, new_run, row, rows
from skep.testing.conformance.store.leasing import leased_one
from skep.testing.conformance.store.reports import done, ids, settle, settlement


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}", patience=5.0)
    await opened.open()
    yield opened
    await opened.close()


def commits_of(store: SqlStore) -> list[int]:
    seen: list[int] = []
    sa.event.listen(store.database.engine, "commit", lambda _: seen.append(1))
    return seen


class Gate:
    """Holds the writing thread inside a transaction until it is opened."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, _tx: Tx) -> str:
        self.entered.set()
        assert self.open.wait(10)
        return "through"


async def test_callers_share_a_commit(store: SqlStore) -> None:
    await new_run(store)
    gate = Gate()
    first = asyncio.create_task(store.database.write(gate))
    await asyncio.to_thread(gate.entered.wait, 10)
    calls = [asyncio.create_task(store.requests.accept("run", [row(n)], NOW)) for n in range(100)]
    await asyncio.sleep(0)
    commits = commits_of(store)
    gate.open.set()
    await asyncio.gather(first, *calls)
    assert len(commits) == 2, "the one at the gate, and all the others together"
    await assert_accounted(store)


async def test_a_caller_that_left_is_not_served(store: SqlStore) -> None:
    await new_run(store)
    gate = Gate()
    first = asyncio.create_task(store.database.write(gate))
    await asyncio.to_thread(gate.entered.wait, 10)
    call = asyncio.create_task(store.requests.accept("run", [row("left")], NOW))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    gate.open.set()
    assert await first == "through"
    assert (await store.requests.accept("run", [row("left")], NOW)).new == 1


async def test_a_store_that_hangs_is_given_up(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}", patience=0.05)
    await store.open()
    gate = Gate()
    with pytest.raises(StoreDown, match=r"0\.05 seconds"):
        await store.database.write(gate)
    gate.open.set()
    await store.close()


async def test_what_was_asked_for_is_done_before_the_end(store: SqlStore) -> None:
    await new_run(store)
    calls = [asyncio.create_task(store.requests.accept("run", [row(n)], NOW)) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(answer.new == 1 for answer in await asyncio.gather(*calls))
    for late in (store.requests.backlog(), store.requests.wake(NOW, 1)):
        with pytest.raises(StoreDown, match="closed"):
            await late


async def test_a_number_of_an_undone_run_is_not_remembered(store: SqlStore) -> None:
    """A run that was undone with its transaction leaves no trace in this process."""

    def make_and_fail(tx: Tx) -> None:
        tx.sql("INSERT INTO runs (id, job, state, settings, created_at) VALUES ('x','','',x'80',1)")
        raise KeyError("undone")

    with pytest.raises(KeyError):
        await store.database.write(make_and_fail)
    with pytest.raises(UnknownRun):
        await store.requests.accept("x", rows(1), NOW)


@pytest.mark.parametrize("inline", [True, False])
async def test_a_store_in_memory(inline: bool) -> None:
    """Reads and writes share the one connection and do not disturb each other."""
    store = SqlStore("sqlite://", inline=inline)
    await store.open()
    block = await leased_one(store, 5)
    calls = [store.requests.accept("run", [row(f"x{n}")], NOW) for n in range(30)]
    await asyncio.gather(*calls, *(store.ledgers.read() for _ in range(30)))
    assert await settle(store, settlement(block, done(ids(block)))) == ["stored"]
    assert (await store.ledgers.read()).accepted == 35
    await assert_accounted(store)
    await store.close()


async def test_the_pragmas_that_a_promise_rests_on(store: SqlStore) -> None:
    def ask(tx: Tx) -> tuple[object, object]:
        return tx.sql("PRAGMA journal_mode").scalar(), tx.sql("PRAGMA synchronous").scalar()

    assert await store.database.write(ask) == ("wal", 2)


def test_an_unknown_database_is_named() -> None:
    with pytest.raises(ConfigurationError, match="oracle"):
        SqlStore("oracle://host/db")


def test_a_password_is_not_described() -> None:
    store = SqlStore("postgresql://skep:secret@127.0.0.1:1/db")
    assert store.describe() == "postgresql://skep:***@127.0.0.1:1/db"


async def test_a_database_that_is_not_there() -> None:
    store = SqlStore("postgresql://skep@127.0.0.1:1/db")
    with pytest.raises(StoreDown, match="does not answer"):
        await store.open()


def test_schemes() -> None:
    names = {
        scheme: dialect_for(sa.make_url(f"{scheme}://host/db")).name
        for scheme in ("sqlite", "postgres", "postgresql+psycopg", "mysql", "mariadb+pymysql")
    }
    assert list(names.values()) == ["sqlite", "postgresql", "postgresql", "mysql", "mysql"]


def test_only_integers_get_into_a_list() -> None:
    assert id_list([1, 2, 3]) == "1,2,3"
    with pytest.raises(ValueError, match="DROP"):
        id_list(["1); DROP TABLE requests"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1021, DiskFull), (1114, DiskFull), (1153, TooLarge), (2013, StoreDown), (1213, StoreDown)],
)
def test_errors_of_mysql_are_ours(number: int, expected: type[SkepError]) -> None:
    dialect = MysqlDialect()
    error = DBAPIError.instance("x", None, pymysql.err.OperationalError(number, "?"), Exception)
    assert isinstance(error, DBAPIError)
    assert isinstance(dialect.explain(error), expected)
    assert dialect.collided(error) is (number == 1213)


def test_errors_without_a_remedy() -> None:
    dialect = SqliteDialect()
    ours = DBAPIError.instance("x", None, sqlite3.IntegrityError("twice"), sqlite3.Error)
    assert isinstance(ours, DBAPIError)
    assert dialect.explain(ours) is None
    data = DBAPIError.instance("x", None, sqlite3.DataError("too big"), sqlite3.Error)
    assert isinstance(data, DBAPIError)
    assert isinstance(dialect.explain(data), InvalidInput)


def test_rows_are_named_by_parameters_while_they_are_few() -> None:
    """One text for every short list, so that it is compiled and planned once."""
    few, other, many = (str(in_list(blocks.c.id, range(count))) for count in (2, 50, 51))
    assert few == other
    assert many.startswith("blocks.id IN (0,1,2,")
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE blocks (id INTEGER)")
        connection.exec_driver_sql("INSERT INTO blocks VALUES (1), (70)")
        for numbers, found in (([], []), ([1, 2], [1]), (range(60), [1])):
            wanted = in_list(blocks.c.id, numbers)
            ids = sa.select(blocks.c.id)
            assert list(connection.scalars(ids.where(wanted))) == found
            assert list(connection.scalars(ids.where(~wanted))) == [
                number for number in (1, 70) if number not in found
            ]
    engine.dispose()
