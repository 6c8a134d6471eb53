"""A writing thread: all waiting jobs go into one transaction. Run by centers only.

Many callers share one sync to disk (group commit). A caller's future resolves after the
commit, never before, and on the event loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class WriteJob:
    """One caller's write, and its result."""

    work: Callable[..., Any]
    future: asyncio.Future[Any] | None
    result: Any = None
    error: BaseException | None = None

    @property
    def given_up(self) -> bool:
        """Whether its caller no longer waits, and the job has not started and need not."""
        return self.future is not None and self.future.cancelled()

    def settle(self) -> None:
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """`commit` writes jobs together: each has a result or an error afterwards."""

    def __init__(self, name: str, commit: Callable[[list[WriteJob]], None], limit: int) -> None:
        """`limit`: maximum callers in one transaction."""
        self._commit = commit
        self._limit = limit
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        # A process that ends without `stop` must not wait for this thread.
        self._thread = threading.Thread(target=self._write_batches, name=name, daemon=True)
        self._thread.start()

    def put(self, work: Callable[..., Any]) -> asyncio.Future[Any]:
        """Must be called on the event loop."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put(WriteJob(work, future))
        return future

    async def stop(self) -> None:
        """Pending jobs are still executed."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _write_batches(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job for job in (job, *self._waiting()) if not job.given_up]
            if jobs:
                self._commit(jobs)
                self._tell(jobs)

    def _waiting(self) -> list[WriteJob]:
        jobs: list[WriteJob] = []
        while len(jobs) < self._limit - 1:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            jobs.append(job)
        return jobs

    def _tell(self, jobs: list[WriteJob]) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle_all, jobs)
        except RuntimeError:  # the loop is closed: no caller waits any more
            return


def _settle_all(jobs: list[WriteJob]) -> None:
    for job in jobs:
        job.settle()
