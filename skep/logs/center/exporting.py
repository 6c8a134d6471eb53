"""Exports every line that is stored, in the order of arrival, from where it stopped last time.

Runs on a center with `logs.export` or `logs.forward`. The position is a small file, saved after the
lines are written: after a kill the last lines may be exported twice, and none is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from skep.logs.center.query import LogQuery
from skep.logs.center.search import LogSearch
from skep.logs.export import LineExport
from skep.model.logs import LogLine
from skep.runtime.files import read_or_none, write_durably

_EVERYTHING = LogQuery()


Write = Callable[[Sequence[LogLine]], Awaitable[None]]


def in_thread(export: LineExport) -> Write:
    """For exports that block."""

    async def write(lines: Sequence[LogLine]) -> None:
        await asyncio.to_thread(export.write, lines)

    return write


class LogExporter:
    """Call `open` once, then `step` repeatedly; it returns the number of exported lines."""

    def __init__(self, search: LogSearch, write: Write, memory: Path) -> None:
        """`write` raises Unavailable when the lines must be sent again."""
        self._search = search
        self._write = write
        self._memory = memory
        self._position = 0

    async def open(self) -> None:
        """Without a position, or with one that cannot be read, it starts with the next line that
        arrives."""
        saved = await asyncio.to_thread(read_or_none, self._memory)
        if saved is not None and saved.strip().isdigit():
            self._position = int(saved)
        else:
            self._position = await self._search.position()
            await self._save()

    async def step(self) -> int:
        """Export everything that has arrived. Raises Unavailable, and OSError when the position
        cannot be saved."""
        written, more = 0, True
        while more:
            followed = await self._search.follow(_EVERYTHING, self._position)
            if followed.lines:
                await self._write(followed.lines)
            if followed.position != self._position:
                self._position = followed.position
                await self._save()
            written, more = written + len(followed.lines), followed.more
        return written

    async def _save(self) -> None:
        await asyncio.to_thread(write_durably, self._memory, b"%d\n" % self._position)
