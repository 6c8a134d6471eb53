"""Transactions on one database, off the event loop. Run by centers only.

Writes go to one thread that puts everything that waits into one transaction: many callers
share one sync to disk (group commit), each with a savepoint of its own so that a failing
caller harms nobody. A caller's future resolves after the commit, never before. `inline`
runs everything at once in the caller's thread, for simulations.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from skep.errors import StoreDown
from skep.store.sql.dialect import Dialect

T = TypeVar("T")
#: A deadlock or a lost connection: the engine undid everything, so the work is done again.
TRANSACTION_TRIES = 3
ACCEPTED = -1


@dataclass(slots=True)
class Tx:
    """One caller's part of a transaction."""

    connection: sa.Connection
    dialect: Dialect
    tallies: Counter[tuple[int, int]] = field(default_factory=Counter)

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        return self.connection.execute(statement, parameters)

    def sql(self, statement: str) -> sa.CursorResult[Any]:
        """A statement without parameters, made of our own words and integers only."""
        return self.connection.exec_driver_sql(statement)

    def tally(self, run: int, state: int, delta: int) -> None:
        """Move a running count; written with everybody else's at the end."""
        if delta:
            self.tallies[run, state] += delta

    def move(self, run: int, before: int, after: int, count: int) -> None:
        """`count` requests went from one state to another."""
        self.tally(run, before, -count)
        self.tally(run, after, count)


Work = Callable[[Tx], Any]


@dataclass(slots=True)
class _Job:
    work: Work
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Database:
    """Runs callables inside transactions and hands their results back."""

    def __init__(
        self,
        url: sa.URL,
        dialect: Dialect,
        readers: int,
        group_limit: int,
        *,
        inline: bool = False,
    ) -> None:
        self.dialect = dialect
        self.engine = dialect.engine(url)
        self._group_limit = group_limit
        self._inline = inline
        self._readers = readers
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Must be called on the event loop."""
        if self._inline:
            return
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(self._readers, thread_name_prefix="store-read")
        self._thread = threading.Thread(target=self._write_for_ever, name="store-write")
        self._thread.start()

    async def stop(self) -> None:
        """Writes that were asked for are still done."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
            self._thread = None
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
        self.engine.dispose()

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction; it is on disk when this returns."""
        if self._inline:
            return self._write_inline(work)
        if self._thread is None or self._loop is None:
            raise StoreDown("the store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` on a connection that sees what was committed."""
        if self._inline:
            return self._read(work)
        if self._pool is None or self._loop is None:
            raise StoreDown("the store is closed")
        return await self._loop.run_in_executor(self._pool, self._read, work)

    def blocking(self, work: Callable[[Tx], T]) -> T:
        """A transaction in the caller's thread; for start-up and simulations."""
        return self._write_inline(work)

    # -- the writing thread

    def _write_for_ever(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job, *self._waiting()]
            self._commit_together(jobs)
            self._tell(jobs)

    def _waiting(self) -> list[_Job]:
        jobs: list[_Job] = []
        while len(jobs) < self._group_limit - 1:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            jobs.append(job)
        return jobs

    def _tell(self, jobs: list[_Job]) -> None:
        assert self._loop is not None  # noqa: S101 - start() came before the thread
        try:
            self._loop.call_soon_threadsafe(_settle_all, jobs)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _commit_together(self, jobs: list[_Job]) -> None:
        for attempt in range(1, TRANSACTION_TRIES + 1):
            try:
                self._one_transaction(jobs)
            except DBAPIError as error:
                known = self.dialect.explain(error) or error
                if attempt < TRANSACTION_TRIES and isinstance(known, StoreDown):
                    continue
                self._fail(jobs, known)
            except Exception as error:  # noqa: BLE001 - it belongs to the callers
                self._fail(jobs, error)
            return

    def _fail(self, jobs: list[_Job], error: BaseException) -> None:
        for job in jobs:
            job.error = error

    def _one_transaction(self, jobs: list[_Job]) -> None:
        with self.engine.connect() as connection, connection.begin():
            self.dialect.begin(connection)
            tallies: Counter[tuple[int, int]] = Counter()
            for job in jobs:
                self._run_job(connection, job, tallies, alone=len(jobs) == 1)
            self._write_tallies(connection, tallies)

    def _run_job(
        self,
        connection: sa.Connection,
        job: _Job,
        tallies: Counter[tuple[int, int]],
        *,
        alone: bool,
    ) -> None:
        job.error = None
        tx = Tx(connection, self.dialect)
        try:
            if alone:
                job.result = job.work(tx)
            else:
                with connection.begin_nested():
                    job.result = job.work(tx)
        except Exception as error:
            # Alone, the whole transaction is undone. In a group the savepoint has undone
            # this caller's part, unless it is the engine that failed: that is everybody's.
            if alone or (isinstance(error, DBAPIError) and self.dialect.explain(error)):
                raise
            job.error = error
            return
        for key, delta in tx.tallies.items():
            tallies[key] += delta

    def _write_tallies(self, connection: sa.Connection, tallies: Counter[tuple[int, int]]) -> None:
        # Sorted, so that two centers take the row locks in the same order.
        rows = [(run, state, n) for (run, state), n in sorted(tallies.items()) if n]
        if rows:
            self.dialect.add_to_tallies(connection, rows)

    # -- without threads

    def _write_inline(self, work: Callable[[Tx], T]) -> T:
        job = _Job(work, None)  # type: ignore[arg-type]  # nobody waits for a future here
        try:
            self._one_transaction([job])
        except DBAPIError as error:
            raise (self.dialect.explain(error) or error) from error
        result: T = job.result
        return result

    def _read(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            with self.engine.connect() as connection:
                return work(connection)
        except DBAPIError as error:
            raise (self.dialect.explain(error) or error) from error


def _settle_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()
