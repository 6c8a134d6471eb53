"""What kills, full disks and lost databases do to the store: nothing that was promised."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.errors import DiskFull, StoreDown
from skep.store.sql.engine.database import Tx
from skep.store.sql.store import SqlStore
from skep.testing import servers
from skep.testing.conformance.store.ground import NOW, assert_accounted, ledger, new_run, row, rows
from skep.testing.needs import unless_absent
from skep.testing.small_disk import small_disk

KILLS = 20
#: A call to a database that is gone must fail within this time, in seconds.
BOUND = 20.0

#: Forks children that accept requests as fast as they can, and kills each at its moment.
#: A child writes the name of a batch to a file when, and only when, it was acknowledged.
NURSERY = """
import asyncio, os, random, signal, sys, time
from skep.store.sql.store import SqlStore
from skep.testing.conformance.store.ground import NOW, row

url, journal, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def accept_for_ever(child):
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = SqlStore(url)
    await store.open()
    os.write(file, b"ready\\n")
    async def caller(caller):
        for turn in range(10**6):
            name = f"{child}-{caller}-{turn}"
            await store.requests.accept("run", [row(f"{name}-{n}") for n in range(3)], NOW)
            os.write(file, name.encode() + b"\\n")
    await asyncio.gather(*(caller(number) for number in range(4)))

for child in range(kills):
    rng = random.Random(child)
    before = os.path.getsize(journal) if os.path.exists(journal) else 0
    pid = os.fork()
    if pid == 0:
        asyncio.run(accept_for_ever(child))
    while not os.path.exists(journal) or os.path.getsize(journal) == before:
        time.sleep(0.001)
    time.sleep(rng.random() * 0.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[SqlStore]:
    store = SqlStore(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def missing(store: SqlStore, names: list[str]) -> int:
    """How many of these requests the store does not know."""
    if not names:
        return 0
    wanted = {row(name).uri for name in names}
    query = sa.text("SELECT uri FROM requests")
    found = await store.database.read(lambda c: set(c.execute(query).scalars()))
    return len(wanted - found)


async def test_kill_9_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """Fault 23: twenty kills in the middle of accepting."""
    url = f"sqlite:///{tmp_path / 'skep.db'}"
    async with opened(url) as store:
        await new_run(store)
    command = [sys.executable, "-c", NURSERY, url, str(tmp_path / "journal"), str(KILLS)]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=100)
    lines = (tmp_path / "journal").read_text().splitlines()
    assert lines.count("ready") == KILLS
    batches = [line for line in lines if line != "ready"]
    assert len(batches) > KILLS
    with sqlite3.connect(tmp_path / "skep.db") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()
    async with opened(url) as store:
        assert await missing(store, [f"{batch}-{n}" for batch in batches for n in range(3)]) == 0
        assert (await ledger(store)).accepted % 3 == 0, "a batch is there whole or not at all"
        await assert_accounted(store)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    with unless_absent(), small_disk(tmp_path / "tiny", megabytes=4) as folder:
        yield folder


async def test_a_full_disk_refuses_and_recovers(tiny_disk: Path) -> None:
    """Fault 25: nothing half-stored, and it works again without a restart."""
    async with opened(f"sqlite:///{tiny_disk / 'skep.db'}") as store:
        await new_run(store)
        await store.requests.accept("run", rows(100), NOW)
        filler = tiny_disk / "filler"
        _fill(filler)
        large = rows(500, start=100, arguments=b"\x94\xa3GET\x80\xc5\xff\x00" + bytes(65280))
        for _ in range(3):
            with pytest.raises(DiskFull, match="free some space"):
                await store.requests.accept("run", large, NOW)
        together = [store.requests.accept("run", large[n::4], NOW) for n in range(4)]
        answers = await asyncio.gather(*together, return_exceptions=True)
        assert {type(answer) for answer in answers} == {DiskFull}
        assert (await ledger(store)).accepted == 100
        await assert_accounted(store)
        filler.unlink()
        assert (await store.requests.accept("run", rows(50, start=900), NOW)).new == 50
        await assert_accounted(store)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            return


async def test_a_database_at_its_limit_refuses_and_recovers(tmp_path: Path) -> None:
    """Fault 25 where nothing can be mounted: SQLite's own limit of pages."""
    async with opened(f"sqlite:///{tmp_path / 'skep.db'}") as store:
        await new_run(store)

        def limit(pages: int) -> Callable[[Tx], int]:
            return lambda tx: int(tx.sql(f"PRAGMA max_page_count={pages}").scalar() or 0)

        used = await store.database.write(lambda tx: tx.sql("PRAGMA page_count").scalar())
        await store.database.write(limit(int(used or 0) + 4))
        with pytest.raises(DiskFull, match="full"):
            await store.requests.accept("run", rows(2000), NOW)
        assert (await ledger(store)).accepted == 0
        await store.database.write(limit(10**6))
        assert (await store.requests.accept("run", rows(2000), NOW)).new == 2000
        await assert_accounted(store)


KINDS = {"postgresql": servers.postgres, "mariadb": servers.mariadb}


@pytest.fixture(params=sorted(KINDS))
def durable_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of this test's own, which it may kill."""
    with unless_absent():
        server = KINDS[request.param](durable=True)
    with server:
        yield server


async def test_a_database_that_dies_and_returns(durable_server: Any) -> None:
    """Fault 26: StoreDown in bounded time, then all goes on, and nothing is lost."""
    acknowledged: list[str] = []
    async with opened(durable_server.fresh_database(), patience=BOUND) as store:
        await new_run(store)

        async def submit(name: str) -> None:
            """A patient caller: the same call again until it is acknowledged."""
            while True:
                try:
                    await store.requests.accept("run", [row(name)], NOW)
                except StoreDown:
                    await asyncio.sleep(0.02)
                else:
                    acknowledged.append(name)
                    return

        for turn, end in enumerate((durable_server.kill, durable_server.stop)):
            callers = [asyncio.create_task(submit(f"{turn}-{n}")) for n in range(300)]
            await asyncio.wait(callers, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(end)
            begun = time.monotonic()
            for call in (store.ping, store.requests.backlog, store.ledgers.read):
                with pytest.raises(StoreDown):
                    await call()
            with pytest.raises(StoreDown):
                await store.requests.accept("run", [row("never")], NOW)
            assert time.monotonic() - begun < BOUND
            await asyncio.to_thread(durable_server.start)
            async with asyncio.timeout(BOUND):
                await asyncio.gather(*callers)
        assert len(acknowledged) == 600
        assert await missing(store, acknowledged) == 0
        assert (await ledger(store)).accepted == 600
        await assert_accounted(store)


async def test_a_database_that_hangs(durable_server: Any) -> None:
    """Fault 26: connections stay open and nothing answers; the caller is told all the same."""
    async with opened(durable_server.fresh_database(), patience=0.5) as store:
        await new_run(store)
        durable_server.pause()
        try:
            begun = time.monotonic()
            calls = [store.requests.accept("run", [row(n)], NOW) for n in range(5)]
            answers = await asyncio.gather(*calls, store.ping(), return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreDown}
            assert time.monotonic() - begun < BOUND
        finally:
            durable_server.resume()
        async with asyncio.timeout(BOUND):
            await _answering(store)
        await store.requests.accept("run", rows(5), NOW)
        assert (await ledger(store)).accepted == 5
        await assert_accounted(store)


async def _answering(store: SqlStore) -> None:
    while True:
        try:
            await store.ping()
            await store.requests.wake(0.0, 1)
        except StoreDown:
            await asyncio.sleep(0.05)
        else:
            return


HANG_UP = {
    "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"),
    "mysql": ("SELECT CONNECTION_ID()", "KILL {}"),
}


def hang_up(store: SqlStore, connection: sa.Connection) -> None:
    """Another session ends this one's connection."""
    ask, kill = HANG_UP[store.database.dialect.name]
    number = connection.exec_driver_sql(ask).scalar()
    with store.database.engine.connect() as other:
        other.exec_driver_sql(kill.format(number))


@pytest.fixture(params=sorted(KINDS))
def server_url(request: pytest.FixtureRequest) -> str:
    name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
    server: servers.Database = request.getfixturevalue(name)
    return server.fresh_database()


async def test_a_connection_lost_before_the_commit_is_not_felt(server_url: str) -> None:
    """The engine has undone it for certain, so it is done again, once."""
    async with opened(server_url) as store:
        await new_run(store)
        tries: list[int] = []

        def work(tx: Tx) -> int:
            tx.tally(1, 50, 1)
            tries.append(len(tries))
            if len(tries) == 1:
                hang_up(store, tx.connection)
            tx.sql("SELECT 1")
            return len(tries)

        others = [store.requests.accept("run", [row(n)], NOW) for n in range(5)]
        answers = await asyncio.gather(store.database.write(work), *others)
        assert answers[0] == 2
        assert (await ledger(store)).accepted == 5
        query = sa.text("SELECT n FROM tallies WHERE state = 50")
        assert await store.database.read(lambda c: c.execute(query).scalar()) == 1
        await store.database.write(lambda tx: tx.sql("DELETE FROM tallies WHERE state = 50"))
        await assert_accounted(store)


async def test_a_connection_lost_at_the_commit_is_told(server_url: str) -> None:
    """It is unknown whether it is stored; the caller asks again, and it is there once."""
    async with opened(server_url) as store:
        await new_run(store)
        commits: list[int] = []

        def lose(connection: sa.Connection) -> None:
            commits.append(1)
            if len(commits) == 1:
                hang_up(store, connection)

        sa.event.listen(store.database.engine, "commit", lose)
        with pytest.raises(StoreDown):
            await store.requests.accept("run", rows(3), NOW)
        assert len(commits) == 1, "it was not tried again behind the caller's back"
        accepted = await store.requests.accept("run", rows(3), NOW)
        assert accepted.new + accepted.known == 3
        assert (await ledger(store)).accepted == 3
        await assert_accounted(store)


async def test_deadlocks_between_centers_are_worked_through(server_url: str) -> None:
    async with opened(server_url) as one, opened(server_url) as two:
        await new_run(one, "a")
        await new_run(one, "b")
        meeting = threading.Barrier(2)

        def crossing(first: str, second: str) -> Callable[[Tx], int]:
            tries = 0

            def work(tx: Tx) -> int:
                nonlocal tries
                tries += 1
                tx.sql(f"UPDATE runs SET created_at = created_at + 1 WHERE id = '{first}'")
                if tries == 1:
                    meeting.wait(10)
                tx.sql(f"UPDATE runs SET created_at = created_at + 1 WHERE id = '{second}'")
                return tries

            return work

        async with asyncio.timeout(BOUND):
            tries = await asyncio.gather(
                one.database.write(crossing("a", "b")), two.database.write(crossing("b", "a"))
            )
        assert sum(tries) > 2, "one of them was the victim"
        created = [run.created_at for run in await one.runs.recent(10)]
        assert created == [NOW + 2, NOW + 2]
