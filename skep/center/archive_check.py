"""Compares the rows of this center's archive segments with the archive, in bounded steps.

Run by centers, as a part of the self-check. A segment that the store says is deleted and that is
still there is deleted. One that is missing, or shorter than what was committed, cannot be
repaired here: it is shown and raises an alert, and no row is ever changed because of it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from skep.archive.ports import Archive
from skep.archive.segments import writer_of
from skep.runtime.clock import Clock
from skep.runtime.repair_counts import Repairs
from skep.store.ports import Store

log = logging.getLogger(__name__)

#: Segments that one step looks at; in a bucket each of them costs two calls.
STEP_LIMIT = 50
#: Segments that an alert names.
NAMED = 5
KIND = "archive"


class _Found(NamedTuple):
    """What one look at a page has found, and where the next page begins."""

    names: frozenset[str]
    lost: frozenset[str]
    left: frozenset[str]
    after: str


class ArchiveCheck:
    """One center's walk over its own segments, oldest first."""

    def __init__(
        self,
        writer: str,
        store: Store,
        archive: Archive,
        clock: Clock,
        repairs: Repairs,
        limit: int = STEP_LIMIT,
    ) -> None:
        self._writer = writer
        self._store = store
        self._archive = archive
        self._clock = clock
        self._repairs = repairs
        self._limit = limit
        #: Where the page began that was looked at last, and what was found there.
        self._began = ""
        self._before: _Found | None = None
        #: Segments that two looks did not find as they were committed.
        self.lost: set[str] = set()

    async def step(self) -> None:
        """Look again at the page before, act on what two looks found; look at the next one."""
        if self._before is not None:
            again = await self._look(self._began)
            await self._settle(self._before, again)
            self._began = self._before.after
        self._before = await self._look(self._began)
        open_ones = self.lost | self._before.lost | self._before.left
        self._repairs.seen(KIND, len(open_ones))

    async def _look(self, after: str) -> _Found:
        page = await self._store.checks.segments(self._writer, after, self._limit)
        rows = [row for row in page if writer_of(row.name) == self._writer]
        sizes = await self._archive.sizes([row.name for row in rows])
        return _Found(
            frozenset(row.name for row in rows),
            frozenset(r.name for r in rows if not r.deleted and sizes.get(r.name, 0) < r.committed),
            frozenset(row.name for row in rows if row.gone and row.name in sizes),
            page[-1].name if len(page) == self._limit else "",
        )

    async def _settle(self, before: _Found, again: _Found) -> None:
        left = sorted(before.left & again.left)
        gone = [name for name in left if await self._archive.delete(name) is not None]
        self._repairs.repaired(KIND, len(gone), f"deleted segments that were still there: {gone}")
        lost = before.lost & again.lost
        new = sorted(lost - self.lost)
        self.lost = (self.lost - again.names) | lost
        if new:
            await self._tell(new)

    async def _tell(self, new: list[str]) -> None:
        more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
        detail = (
            f"archive segments are missing or shorter than what was committed: "
            f"{', '.join(new[:NAMED])}{more}; bodies in them cannot be read: bring them back from "
            f"a backup into {self._archive.describe()}"
        )
        log.error("%s", detail)
        await self._store.alerts.raise_("archive_lost", self._writer, detail, self._clock.now())
