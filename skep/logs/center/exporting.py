"""Exports every line that is stored, in the order of arrival, from where it stopped last time.

Runs on a center that is told to export. The position is a small file, saved after the lines are
written: after a kill the last lines may be exported twice, and none is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from skep.logs.center.query import LogQuery
from skep.logs.center.search import LogSearch
from skep.logs.export import LineExport
from skep.runtime.files import read_or_none, write_durably

_EVERYTHING = LogQuery()


class LogExporter:
    """`open` first; then `step` again and again, which returns how many lines it wrote."""

    def __init__(self, search: LogSearch, exports: Sequence[LineExport], memory: Path) -> None:
        self._search = search
        self._exports = exports
        self._memory = memory
        self._position = 0

    async def open(self) -> None:
        """Without a position, or with one that cannot be read, it starts with what comes next."""
        saved = await asyncio.to_thread(read_or_none, self._memory)
        if saved is not None and saved.strip().isdigit():
            self._position = int(saved)
        else:
            self._position = await self._search.position()
            await self._save()

    async def step(self) -> int:
        """Raises OSError when the position cannot be saved."""
        followed = await self._search.follow(_EVERYTHING, self._position)
        for export in self._exports:
            await asyncio.to_thread(export.write, followed.lines)
        if followed.position != self._position:
            self._position = followed.position
            await self._save()
        return len(followed.lines)

    async def _save(self) -> None:
        await asyncio.to_thread(write_durably, self._memory, b"%d\n" % self._position)
