"""Queries as generators, on real databases: read-only, streamed, bounded in time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.jobs.definitions.connection_limits import job_limits
from skep.jobs.generators.generator_contract import GeneratorFailed, Raw
from skep.jobs.generators.sql_source import SqlSource
from skep.model.jobs.job import Generator
from skep.model.user_code import CodeLimits
from skep.runtime.clock import SystemClock
from skep.settings import JobsSettings, Settings
from skep.testing import servers

#: The servers of these tests are on this machine.
LIMITS = job_limits(Settings(jobs=JobsSettings(allow_hosts=("127.0.0.0/8",))))
ROWS = 20_000
COUNTING = {
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {n})"
    " SELECT 'http://a/' || n AS uri FROM s",
    "postgresql": "SELECT 'http://a/' || n AS uri FROM generate_series(1, {n}) AS n",
    "mysql": "SELECT CONCAT('http://a/', seq) AS uri FROM seq_1_to_{n}",
}
SLEEPING = {
    "sqlite": COUNTING["sqlite"].format(n=10**12).replace("SELECT 'http", "SELECT DISTINCT 'http"),
    "postgresql": "SELECT pg_sleep(60)",
    "mysql": "SELECT SLEEP(60) FROM goods",
}


class Shop:
    """A database with goods, and generators that ask it by reference."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SHOP": url}
        parsed = sa.make_url(url)
        driver = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
        name = parsed.drivername.partition("+")[0]
        self.engine = sa.create_engine(parsed.set(drivername=driver.get(name, "mysql+pymysql")))
        self.kind = self.engine.dialect.name
        with self.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS goods")
            connection.exec_driver_sql("CREATE TABLE goods (id INTEGER, page VARCHAR(100))")
            connection.exec_driver_sql("INSERT INTO goods VALUES (1, 'http://a/1')")

    async def read(self, query: str, seconds: float | None = None, **more: Any) -> list[Raw]:
        where = "sqlite:///shop.db" if self.kind == "sqlite" else "env:SHOP"
        limits = CodeLimits(time=seconds)
        generator = Generator("sql", url=where, query=query, limits=limits, **more)
        source = SqlSource(generator, self.folder, self.environment, LIMITS, SystemClock())
        found: list[Raw] = []
        async with aclosing(source.batches()) as batches:
            async for batch in batches:
                found += batch
        return found


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if request.param != "sqlite":
        name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
        server: servers.Database = request.getfixturevalue(name)
        url = server.fresh_database()
    made = Shop(url, tmp_path)
    yield made
    made.engine.dispose()


async def test_rows_are_streamed(shop: Shop) -> None:
    """D1: in order and in bounded pieces."""
    assert await shop.read("SELECT id, page AS uri FROM goods") == [
        {"uri": "http://a/1", "meta": {"id": 1}}
    ]
    few = await shop.read(COUNTING[shop.kind].format(n=ROWS))
    assert few == [f"http://a/{n}" for n in range(1, ROWS + 1)]


async def test_many_rows_are_never_in_memory_at_once(shop: Shop) -> None:
    """A server-side cursor: what is read and let go takes no room."""
    query = COUNTING[shop.kind].format(n=80_000)
    where = "sqlite:///shop.db" if shop.kind == "sqlite" else "env:SHOP"
    generator = Generator("sql", url=where, query=query)
    source = SqlSource(generator, shop.folder, shop.environment, LIMITS, SystemClock())
    count = 0
    tracemalloc.start()
    try:
        async with aclosing(source.batches()) as batches:
            async for batch in batches:
                count += len(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 80_000
    assert peak < 4 * 2**20, f"{peak / 2**20:.1f} MB; all rows would be more than 8"


@pytest.mark.parametrize(
    "query",
    [
        "WITH x AS (DELETE FROM goods RETURNING id) SELECT 'http://a/' FROM x",
        "SELECT 1; DELETE FROM goods",
        "SELECT no_such_column FROM goods",
    ],
)
async def test_nothing_can_be_written(shop: Shop, query: str) -> None:
    with pytest.raises(GeneratorFailed, match="the query failed: ") as failed:
        await shop.read(query)
    assert "env" not in str(failed.value)
    assert "@" not in str(failed.value), "no address of the database"
    with shop.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM goods").scalar() == 1


async def test_a_query_that_takes_too_long_is_ended(shop: Shop) -> None:
    with pytest.raises(GeneratorFailed, match=r"took longer than its 1 s|the query failed"):
        await shop.read(SLEEPING[shop.kind], seconds=1.0)


async def test_a_reference_to_nothing(shop: Shop) -> None:
    shop.environment = {"SHOP": "nonsense", "SKEP_X": "sqlite:///shop.db"}
    for url, told in (
        ("env:NOT_SET", "no variable NOT_SET"),
        ("env:SKEP_X", "no variable SKEP_X"),
        ("env:SHOP", "SHOP does not contain the URL of a database"),
    ):
        generator = Generator("sql", url=url, query="SELECT 1")
        source = SqlSource(generator, shop.folder, shop.environment, LIMITS, SystemClock())
        with pytest.raises(GeneratorFailed, match=told):
            await anext(source.batches())
