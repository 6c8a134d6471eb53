"""Stores the output files of all child processes of a center. Runs on the event loop.

A feed belongs to one process while it runs. Files that no process writes to, and that are not
stored to their end, are finished by `step`: after a crash of the center, or when the store was
away at the end of the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from skep.errors import SkepError
from skep.logs.center.file_feed import POSITION_SUFFIX, FileFeed
from skep.logs.center.intake import LogIntake
from skep.model.logs import LogSource
from skep.runtime.clock import Clock

log = logging.getLogger(__name__)

#: Seconds between two reads of a file.
EVERY = 0.5
#: Seconds for the last lines of a process that has ended.
FINISH_SECONDS = 5.0


class FileFeeds:
    """`folder` has the files. Without an intake nothing is stored."""

    def __init__(self, folder: Path, center: str, intake: LogIntake | None, clock: Clock) -> None:
        self._folder = folder
        self._center = center
        self._intake = intake
        self._clock = clock
        self._active: set[Path] = set()

    @asynccontextmanager
    async def storing(self, path: Path, source: LogSource, token: int) -> AsyncIterator[None]:
        """Feed a file while the context is open, and its rest at the end. Raises Unavailable."""
        if self._intake is None:
            yield
            return
        feed = FileFeed(path, self._center, self._intake, self._clock)
        self._active.add(path)
        try:
            await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
            await feed.open(source, token)
            task = asyncio.create_task(self._keep_storing(feed))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await self._finish(feed)
        finally:
            self._active.discard(path)

    async def _keep_storing(self, feed: FileFeed) -> None:
        while True:
            try:
                more = await feed.step()
            except SkepError as error:  # the store is away: the file keeps the lines
                log.debug("output of a process waits: %s", error.detail)
                more = False
            if not more:
                await self._clock.sleep(EVERY)

    async def _finish(self, feed: FileFeed) -> None:
        """What is not stored in time is stored by `step`."""
        with suppress(SkepError, TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await feed.finish()

    async def step(self) -> None:
        """Finish files without a process. Raises Unavailable."""
        if self._intake is None:
            return
        for memory in await asyncio.to_thread(_position_files, self._folder):
            path = memory.with_suffix(".log")
            if path not in self._active:
                feed = FileFeed(path, self._center, self._intake, self._clock)
                if await feed.finish():
                    await asyncio.to_thread(feed.forget)


def _position_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{POSITION_SUFFIX}")) if folder.is_dir() else []
