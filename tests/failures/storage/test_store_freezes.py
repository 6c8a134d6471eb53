"""R4: a center that freezes inside a transaction stops no other center.

A child process settles reports and stops itself (SIGSTOP) before a statement; this process
works on the same run meanwhile. Real PostgreSQL and MariaDB.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from skep.model.block import Leased
from skep.model.hosts.host import SiteNote
from skep.store.ports.blocks import Settlement
from skep.store.sql.engine import server_sessions
from skep.store.sql.engine.database import Tx
from skep.store.sql.store import SqlStore
from skep.testing import servers
from skep.testing.conformance.store.ground import NOW, assert_accounted, ledger, new_run, rows
from skep.testing.conformance.store.leasing import lease, pack
from skep.testing.conformance.store.reports import done, ids, settle, settlement
from skep.testing.fleet import tell
from skep.testing.polling import until

#: Seconds in which the other center must get its work done.
PROGRESS = 3.0
#: A transaction has fewer statements than this.
STATEMENTS = 40
SIZE = 4
#: Seconds for a child that was thawed.
ANSWER = 30.0

#: Settles one block per line of its input and stops before the statement that the line names.
#: It answers with the number of statements of the transaction.
CHILD = """
import asyncio, os, signal, sys, threading
import msgspec
from skep.errors import StoreDown
from skep.model.block import Leased
from skep.store.sql.engine import server_sessions
from skep.store.sql.store import SqlStore
from skep.testing.conformance.store.reports import settle
sys.path.insert(0, sys.argv[2])
from tests.failures.storage.test_store_freezes import reported

server_sessions.IDLE_SECONDS = int(sys.argv[3])
state = {"seen": 0, "stop": 0}

def counted(method):
    def call(*args, **options):
        if threading.current_thread().name == "store-write":
            state["seen"] += 1
            if state["seen"] == state["stop"]:
                os.kill(os.getpid(), signal.SIGSTOP)
        return method(*args, **options)
    return call

import psycopg, pymysql
for kind, names in (
    (psycopg.Cursor, ("execute", "copy", "executemany")), (psycopg.ClientCursor, ("execute",)),
    (psycopg.Connection, ("commit",)), (pymysql.cursors.Cursor, ("execute",)),
    (pymysql.connections.Connection, ("commit",)),
):
    for name in names:
        if name in vars(kind) or kind is psycopg.ClientCursor:
            setattr(kind, name, counted(getattr(kind, name)))

async def main():
    store = SqlStore(sys.argv[1])
    await store.open()
    for line in sys.stdin:
        asked = msgspec.json.decode(line)
        state.update(seen=0, stop=asked["stop"])
        block = msgspec.convert(asked["block"], Leased)
        try:
            verdicts = await settle(store, reported(block, "child"))
        except StoreDown:
            # As an agent would: the outcome is unknown, so it reports again.
            verdicts = ["told", *await settle(store, reported(block, "child"))]
        print(state["seen"], *verdicts, flush=True)
    await store.close()

asyncio.run(main())
"""


def reported(block: Leased, agent: str) -> Settlement:
    """Every request of the block is done, and the block's host got its requests."""
    one = settlement(block, done(ids(block)), agent=agent)
    one.report.sites = [SiteNote("host", requests=SIZE)]
    return one


class Child:
    """A center's store in a process of its own."""

    def __init__(self, url: str, idle: int) -> None:
        folder = str(Path(__file__).parents[3])
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, folder, str(idle)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, block: Leased, stop: int) -> bool:
        """Settle `block`, and freeze before the statement number `stop`; False when the
        transaction has fewer."""
        assert self._process.stdin is not None
        asked = {"stop": stop, "block": block}
        self._process.stdin.write(msgspec.json.encode(asked).decode() + "\n")
        self._process.stdin.flush()
        return self._stopped()

    def _stopped(self) -> bool:
        assert self._process.stdout is not None
        while True:
            pid, status = os.waitpid(self._process.pid, os.WUNTRACED | os.WNOHANG)
            if pid:
                assert os.WIFSTOPPED(status), f"the child ended: {status}"
                return True
            if select.select([self._process.stdout], [], [], 0.01)[0]:
                return False

    def thaw(self) -> list[str]:
        """The number of statements of its transaction, and the verdict."""
        self._process.send_signal(signal.SIGCONT)
        return self.answer()

    def answer(self) -> list[str]:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], ANSWER)[0], "the child is silent"
        return self._process.stdout.readline().split()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def child(url: str, idle: int) -> Iterator[Child]:
    one = Child(url, idle)
    try:
        yield one
    finally:
        one.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlStore]:
    store = SqlStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=["postgres_server", "mariadb_server"])
def url(request: pytest.FixtureRequest) -> str:
    server: servers.Database = request.getfixturevalue(request.param)
    return server.fresh_database()


async def two_shares(store: SqlStore, blocks: int) -> tuple[list[Leased], list[Leased]]:
    """Blocks of one run, in the hands of two agents."""
    await new_run(store)
    await store.requests.accept("run", rows(2 * blocks * SIZE), NOW)
    refs = await pack(store, size=SIZE, limit=2 * blocks * SIZE)
    return await lease(store, refs[:blocks], "child"), await lease(store, refs[blocks:], "parent")


async def test_the_other_center_works_while_one_is_frozen_in_a_transaction(url: str) -> None:
    """R4, fault 30: before each statement of a transaction in turn, COMMIT included."""
    async with opened(url) as store:
        theirs, mine = await two_shares(store, STATEMENTS)
        longest, frozen = 0.0, 0
        with child(url, server_sessions.IDLE_SECONDS) as other:
            for number, (its, my) in enumerate(zip(theirs, mine, strict=True), start=1):
                if not await asyncio.to_thread(other.begin, its, number):
                    assert (await asyncio.to_thread(other.answer))[1:] == ["stored"]
                    break
                began = time.monotonic()
                async with asyncio.timeout(PROGRESS):
                    assert await settle(store, reported(my, "parent")) == ["stored"]
                    await store.requests.accept("run", rows(1, start=10_000 + number), NOW)
                longest = max(longest, time.monotonic() - began)
                assert (await asyncio.to_thread(other.thaw))[1:] == ["stored"]
                frozen += 1
        assert 5 < frozen < STATEMENTS
        assert (await ledger(store)).done == (2 * frozen + 1) * SIZE
        await assert_accounted(store)
        tell("30", store=url.partition(":")[0], frozen_before=frozen, longest_wait=longest)


async def test_a_session_that_the_server_ended_is_run_again(url: str) -> None:
    """R4, fault 30: a freeze that outlasts the server's limit, before each statement: the
    transaction is undone and then done once, or the caller hears of it; never half done."""
    async with opened(url) as store:
        theirs, _ = await two_shares(store, STATEMENTS)
        verdicts: list[str] = []
        with child(url, 1) as other:
            for number, its in enumerate(theirs[: STATEMENTS // 4]):
                if not await asyncio.to_thread(other.begin, its, 4 * number + 2):
                    verdicts += (await asyncio.to_thread(other.answer))[1:]
                    break
                await until_ended(store)
                verdicts += (await asyncio.to_thread(other.thaw))[1:]
        settled = [verdict for verdict in verdicts if verdict != "told"]
        assert set(settled) == {"stored"}
        assert len(settled) > 2
        assert (await ledger(store)).done == len(settled) * SIZE
        await assert_accounted(store)


async def until_ended(store: SqlStore) -> None:
    """Until the server has ended the child's transaction."""
    if store.database.dialect.name == "postgresql":
        query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    else:
        query = "SELECT count(*) FROM information_schema.innodb_trx"
    # MariaDB renews this table only when it was not read for 0.1 s.
    await until(
        lambda: store.database.read(lambda c: c.execute(sa.text(query)).scalar()),
        lambda count: not count,
        seconds=10,
        step=0.2,
    )


async def test_each_session_has_its_limits(url: str) -> None:
    """R4: of readers and of writers."""
    async with opened(url) as store:
        if store.database.dialect.name == "postgresql":
            names = {
                "idle_in_transaction_session_timeout": "10s",
                "tcp_keepalives_idle": "10",
                "tcp_keepalives_interval": "5",
                "tcp_keepalives_count": "3",
                "tcp_user_timeout": "20000",
                "lock_timeout": "15s",
            }
            query = "SHOW {}"
        else:
            names = {"idle_write_transaction_timeout": "10", "innodb_lock_wait_timeout": "15"}
            query = "SELECT @@{}"
        for name, value in names.items():
            statement = sa.text(query.format(name))
            of_reader = await store.database.read(partial(_one, statement))
            of_writer = await store.database.write(partial(_one, statement))
            assert (of_reader, of_writer) == (value, value), name


def _one(statement: sa.TextClause, connection: sa.Connection | Tx) -> str:
    return str(connection.execute(statement).scalar())
