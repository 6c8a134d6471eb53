"""Transactions on one database, off the event loop. Run by centers only.

All waiting writes go into one transaction, each caller with its own savepoint, so that one
failing caller affects no other. Where the engine allows two writers there are two: heartbeats
must not wait until another center releases a run. `inline` runs everything at once in the
caller's thread, for simulations.

Retried automatically: a transaction that the engine has certainly rolled back, because of a
deadlock or because the connection was lost before COMMIT was sent. When the connection is lost
during COMMIT the result is unknown, so the caller gets `StoreDown` and decides. A second call is
safe for every method of the store: rows are inserted once per key, a change of state finds
nothing left to change, and a lease or a report that did go through is refused by its token. The
answer can differ ("known" instead of "new"), and blocks that were packed or leased without an
answer come back by `claimable` and `reap`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import SkepError, StoreDown, Unavailable
from skep.store.sql.engine.dialect import Dialect
from skep.store.sql.engine.running_counts import Sums
from skep.store.sql.engine.sqlite_file import StoreFile
from skep.store.sql.engine.writer import WriteJob, Writer
from skep.store.sql.hosts.rows import HostCounts
from skep.store.sql.monitoring.death_counts import DeathCounts
from skep.store.sql.schema.requests import request_spans, tallies
from skep.store.sql.schema.runs import figures

T = TypeVar("T")
#: Maximum consecutive deadlocks of one transaction, retried with a growing pause.
COLLISION_TRIES = 8
COLLISION_PAUSE = 0.003
#: Seconds that a caller waits for a database that hangs without an error.
PATIENCE = 60.0
ACCEPTED = -1
#: Added to a state: its requests whose rows were deleted. The state's count includes them.
FORGOTTEN = 16
#: Spans of one minute; a process widens one of them, so that centers seldom wait for each other.
SHARDS = 8
#: Kind of a span of ids: of a run. Those of a minute begin after it, one for each shard.
OF_RUN = 0
MINUTES = tuple(range(OF_RUN + 1, OF_RUN + 1 + SHARDS))
MINUTE = 60.0


@dataclass(slots=True)
class Tx:
    """One caller's part of a transaction."""

    connection: sa.Connection
    dialect: Dialect
    tallies: Counter[tuple[int, int]] = field(default_factory=Counter)
    figures: Counter[tuple[int, str]] = field(default_factory=Counter)
    sites: HostCounts = field(default_factory=HostCounts)
    deaths: DeathCounts = field(default_factory=DeathCounts)
    spans: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        return self.connection.execute(statement, parameters)

    def sql(self, statement: str) -> sa.CursorResult[Any]:
        """Run a statement without parameters, built from constants and integers only."""
        return self.connection.exec_driver_sql(statement)

    def tally(self, run: int, state: int, delta: int) -> None:
        """Change a running count; written with those of all callers at the end."""
        if delta:
            self.tallies[run, state] += delta

    def move(self, run: int, before: int, after: int, count: int) -> None:
        """`count` requests went from one state to another."""
        self.tally(run, before, -count)
        self.tally(run, after, count)

    def span(self, run: int, at: float, low: int, high: int) -> None:
        """Requests of a run that were accepted at a time have ids from `low` to `high`."""
        self.widen((OF_RUN, run), low, high)
        self.widen((OF_RUN + 1, int(at // MINUTE)), low, high)

    def widen(self, key: tuple[int, int], low: int, high: int) -> None:
        """Make a span contain these ids."""
        known = self.spans.get(key, (low, high))
        self.spans[key] = min(known[0], low), max(known[1], high)


Work = Callable[[Tx], Any]


class Database:
    """Runs callables inside transactions and returns their results."""

    def __init__(
        self,
        url: sa.URL,
        dialect: Dialect,
        readers: int,
        group_limit: int,
        *,
        inline: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self.dialect = dialect
        self.engine = dialect.engine(url)
        # Each statement sees what was committed before it, with or without a transaction: reads do
        # without where that saves round trips to the server.
        self._reading = self.engine.execution_options(**dialect.reading)
        self._group_limit = group_limit
        self._inline = inline
        self._patience = patience
        # A database in memory is one connection, which reads and writes must not share.
        self._reads_as_writes = dialect.one_connection(url) and not inline
        self._readers = readers
        self._shard = os.getpid() % SHARDS
        self._writer: Writer | None = None
        self._quick: Writer | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._file: StoreFile | None = None

    def watch(self, file: StoreFile) -> None:
        """Check this file after every commit, before callers get their answers."""
        self._file = file

    def check_file(self) -> None:
        """Raises StoreDown when the file of the database was lost."""
        if self._file is not None:
            self._file.check()

    def start(self) -> None:
        """Must be called on the event loop."""
        if self._inline:
            return
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(self._readers, thread_name_prefix="store-read")
        self._writer = self._quick = self._new_writer("store-write")
        if not self.dialect.one_writer:
            self._quick = self._new_writer("store-quick")

    def _new_writer(self, name: str) -> Writer:
        return Writer(name, self._commit_together, self._group_limit)

    async def stop(self) -> None:
        """Pending writes are still executed; later ones are refused."""
        writers = [writer for writer in {self._writer, self._quick} if writer is not None]
        pool, self._pool = self._pool, None
        self._writer = self._quick = None
        for writer in writers:
            await writer.stop()
        if pool is not None:
            await asyncio.get_running_loop().run_in_executor(None, pool.shutdown)
        self.engine.dispose()

    async def write(self, work: Callable[[Tx], T], *, quick: bool = False) -> T:
        """Run `work` in a transaction; it is on disk when this returns. `quick`: it holds no lock
        for long, and must not wait for callers that do."""
        if self._inline:
            return self.blocking(work)
        writer = self._quick if quick else self._writer
        if writer is None:
            raise StoreDown("the store is closed")
        return await self._patiently(writer.put(work))

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` on a connection that sees what was committed."""
        if self._reads_as_writes:
            return await self.write(lambda tx: work(tx.connection))
        if self._inline:
            return self._read(work)
        if self._pool is None or self._loop is None:
            raise StoreDown("the store is closed")
        return await self._patiently(self._loop.run_in_executor(self._pool, self._read, work))

    async def _patiently(self, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(self._patience):
                return await future
        except TimeoutError:
            raise StoreDown(
                f"the {self.dialect.name} store has not answered for {self._patience:g} seconds"
            ) from None

    # -- in a writing thread

    def _commit_together(self, jobs: list[WriteJob]) -> None:
        """Every job has a result or an error afterwards."""
        try:
            self._through_faults(jobs)
        except _Collision as collision:
            if len(jobs) == 1:
                jobs[0].error = collision.known
                return
            # Alone each takes its locks in a fixed order, which a large group cannot.
            for job in jobs:
                self._commit_together([job])
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            for job in jobs:
                job.error = _copy(error)

    def _through_faults(self, jobs: list[WriteJob]) -> None:
        """One transaction, retried while the engine has certainly rolled it back."""
        collisions, losses = 0, 0
        while True:
            try:
                return self._one_transaction(jobs)
            except _Collision:
                collisions += 1
                if len(jobs) > 1 or collisions == COLLISION_TRIES:
                    raise
                time.sleep(COLLISION_PAUSE * 2**collisions)
            except _LostBeforeCommit as lost:
                losses += 1
                if losses > 1:
                    raise lost.known from lost

    def _one_transaction(self, jobs: list[WriteJob]) -> None:
        try:
            with self.engine.connect() as connection:
                sums = self._fill(connection, jobs)
                self.dialect.commit_with(connection, sums)
                connection.commit()
                self.check_file()
        except DBAPIError as error:
            # At COMMIT a lost connection proves nothing: no retry.
            known = self.dialect.explain(error)
            if known is not None and self.dialect.collided(error):
                raise _Collision(known) from error
            raise (known or error) from error

    def _fill(self, connection: sa.Connection, jobs: list[WriteJob]) -> list[Sums]:
        """Runs all jobs; returns the shared counts, which are added with COMMIT."""
        try:
            self.dialect.begin(connection)
            total = Tx(connection, self.dialect)
            for job in jobs:
                self._run_job(job, total, alone=len(jobs) == 1)
            return _sums_of(total, self._shard)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            raise _LostBeforeCommit(self.dialect.explain(error) or StoreDown("lost")) from error

    def _run_job(self, job: WriteJob, total: Tx, *, alone: bool) -> None:
        job.error = None
        tx = Tx(total.connection, self.dialect)
        if alone:
            job.result = job.work(tx)
        else:
            self._in_savepoint(tx, job)
        if job.error is None:
            total.tallies.update(tx.tallies)
            total.figures.update(tx.figures)
            total.sites.update(tx.sites)
            total.deaths.update(tx.deaths)
            for key, (low, high) in tx.spans.items():
                total.widen(key, low, high)

    def _in_savepoint(self, tx: Tx, job: WriteJob) -> None:
        tx.sql("SAVEPOINT one_caller")
        try:
            job.result = job.work(tx)
        except Exception as error:
            # A failure of the engine affects all callers, and may have removed the savepoint.
            if isinstance(error, DBAPIError):
                known = self.dialect.explain(error)
                if isinstance(known, Unavailable):
                    raise
                error = known or error
            job.error = error
            tx.sql("ROLLBACK TO SAVEPOINT one_caller")
        tx.sql("RELEASE SAVEPOINT one_caller")

    # -- without threads

    def blocking(self, work: Callable[[Tx], T]) -> T:
        """A transaction in the caller's thread; for start-up and simulations."""
        job = WriteJob(work, None)
        self._commit_together([job])
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _read(self, work: Callable[[sa.Connection], T]) -> T:
        """Retries when the connection was lost, which may have been long ago: connections are not
        checked before each use."""
        try:
            return self._read_once(work)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise (self.dialect.explain(error) or error) from error
        try:
            return self._read_once(work)
        except DBAPIError as error:
            raise (self.dialect.explain(error) or error) from error

    def _read_once(self, work: Callable[[sa.Connection], T]) -> T:
        with self._reading.connect() as connection:
            return work(connection)


class _Undone(Exception):
    """The engine rolled everything back; `known` is the error for the caller."""

    def __init__(self, known: SkepError) -> None:
        super().__init__(known.detail)
        self.known = known


class _Collision(_Undone):
    """A deadlock with another center."""


class _LostBeforeCommit(_Undone):
    """The connection broke and COMMIT had not been sent."""


def _sums_of(total: Tx, shard: int) -> list[Sums]:
    """Sorted, so that two centers take the row locks in the same order."""
    tallied = [(run, state, n) for (run, state), n in sorted(total.tallies.items()) if n]
    counted = [(run, name, n) for (run, name), n in sorted(total.figures.items()) if n]
    found = [
        Sums(tallies, ("run", "state", "n"), 2, ("n",), tallied),
        Sums(figures, ("run", "name", "n"), 2, ("n",), counted),
        total.sites.sums(),
        *total.deaths.sums(),
        Sums(request_spans, _SPAN, 2, (), _spans(total, shard), lowers=("low",), raises=("high",)),
    ]
    return [sums for sums in found if sums.rows]


_SPAN = ("kind", "number", "low", "high")


def _spans(total: Tx, shard: int) -> list[tuple[int, int, int, int]]:
    return sorted(
        (kind + shard if kind > OF_RUN else kind, number, low, high)
        for (kind, number), (low, high) in total.spans.items()
    )


def _copy(error: Exception) -> Exception:
    """One exception for each waiting task, because each adds its own traceback."""
    return type(error)(error.detail) if isinstance(error, SkepError) else error
