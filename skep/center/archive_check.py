"""Compares the rows of this center's archive segments with the archive, in bounded steps.

Run by centers, as a part of the self-check. A segment that is deleted in the store but still
in the archive is deleted. A segment that is missing, or shorter than what was committed,
cannot be repaired here: it raises an alert, and no row is ever changed because of it.
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

#: Number of segments that one step checks; in a bucket each costs two calls.
STEP_LIMIT = 50
#: Number of segments that an alert names.
NAMED = 5
KIND = "archive"


class _Found(NamedTuple):
    """What the check of one page has found, and where the next page begins."""

    names: frozenset[str]
    lost: frozenset[str]
    left: frozenset[str]
    after: str


class ArchiveCheck:
    """Walks over the segments of one center, oldest first."""

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
        #: Start of the page that was checked last, and what was found in it.
        self._began = ""
        self._before: _Found | None = None
        #: Segments that two checks did not find as they were committed.
        self.lost: set[str] = set()

    async def step(self) -> None:
        """Check the last page again, act on what both checks found, then check the next page."""
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
        what = f"deleted segments that were still in the archive: {gone}"
        self._repairs.repaired(KIND, len(gone), what)
        lost = before.lost & again.lost
        new = sorted(lost - self.lost)
        self.lost = (self.lost - again.names) | lost
        if new:
            await self._tell(new)

    async def _tell(self, new: list[str]) -> None:
        more = f" and {len(new) - NAMED} more" if len(new) > NAMED else ""
        detail = (
            f"archive segments are missing or shorter than what was committed: "
            f"{', '.join(new[:NAMED])}{more}; bodies in them cannot be read: restore them from "
            f"a backup into {self._archive.describe()}"
        )
        log.error("%s", detail)
        await self._store.alerts.raise_("archive_lost", self._writer, detail, self._clock.now())
