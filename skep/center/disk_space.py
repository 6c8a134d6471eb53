"""Checks disk space. When a disk is full, the center accepts and leases no more work.

It checks the folders of data and archive every second, and every write that failed because
the disk is full is reported to it, including those of the database. Results of leased blocks
are still accepted while they fit. It recovers automatically and never needs a restart.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from skep.archive.ports import Archive
from skep.archive.registry import folder_of, is_s3
from skep.errors import ArchiveDown, DiskFailed, DiskFull, SkepError, Unavailable
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store

log = logging.getLogger(__name__)

#: Seconds between two tests whether a database that was full accepts writes again.
TRIAL_EVERY = 5.0

FreeBytes = Callable[[Path], int]


def free_bytes(folder: Path) -> int:
    """Free bytes of the file system of a folder, or of its nearest existing parent."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    return shutil.disk_usage(there).free


def disk_space(
    name: str, settings: Settings, store: Store, archive: Archive, clock: Clock
) -> DiskSpace:
    """A `DiskSpace` for every folder that this center writes to."""
    folders = [Path(settings.data)]
    if not is_s3(settings.archive_url):
        folders.append(folder_of(settings.archive_url))
    return DiskSpace(name, folders, settings.keep.free_bytes, store, clock, archive.check)


class DiskSpace:
    """What one center knows about its disks."""

    def __init__(
        self,
        center: str,
        folders: Iterable[Path],
        floor: int,
        store: Store,
        clock: Clock,
        look_at_archive: Callable[[], Awaitable[None]],
        free: FreeBytes = free_bytes,
    ) -> None:
        self._center = center
        self._folders = tuple(dict.fromkeys(path.absolute() for path in folders))
        self._floor = floor
        self._store = store
        self._clock = clock
        self._free = free
        self._look_at_archive = look_at_archive
        #: Why the center accepts nothing at present; "" = it accepts work.
        self.trouble = ""
        self._kind: type[Unavailable] = DiskFull
        #: Why no result can be archived, so that nothing is leased; "" = the archive works.
        self.archive_trouble = ""
        self._refused_at: float | None = None
        self._alerted = ""

    @property
    def full(self) -> bool:
        """Whether the reason is a full disk."""
        return bool(self.trouble) and self._kind is DiskFull

    @property
    def stops_leasing(self) -> str:
        """Why no work is leased; "" when it is."""
        return self.trouble or self.archive_trouble

    def check(self) -> None:
        """Raises DiskFull while the disk is full, DiskFailed while it cannot be written."""
        if self.trouble:
            raise self._kind(self.trouble)

    def heard(self, error: SkepError) -> None:
        """Note a write that failed because the disk is full or failed, whatever the figures are."""
        if isinstance(error, DiskFull | DiskFailed) and not self.trouble:
            self._refused_at = self._clock.monotonic()
            self._begin(error.detail, type(error))

    def figures(self) -> list[tuple[str, int]]:
        """(folder, free bytes)."""
        return [(str(folder), self._free(folder)) for folder in self._folders]

    async def look(self) -> None:
        """Check once a second; raise an alert, and end it when the problem is over."""
        await self._archive()
        low = self._low()
        if low:
            self._begin(low, DiskFull)
        elif self.trouble and await self._takes_writes():
            log.warning("the disk accepts writes again; the center continues")
            self.trouble = self._alerted = ""
            self._refused_at = None
        if self.trouble and self._alerted != self.trouble:
            await self._alert(self.trouble)
            self._alerted = self.trouble

    async def _archive(self) -> None:
        """Stop leasing and raise an alert; the archive itself refuses results."""
        was, self.archive_trouble = self.archive_trouble, await self._archive_error()
        if self.archive_trouble and not was:
            log.error("leasing stopped: %s", self.archive_trouble)
            code, now = ArchiveDown.code, self._clock.now()
            await self._store.alerts.raise_(code, self._center, self.archive_trouble, now)
        elif was and not self.archive_trouble:
            log.warning("the archive is available again; leasing continues")

    async def _archive_error(self) -> str:
        try:
            await self._look_at_archive()
        except ArchiveDown as error:
            return error.detail
        return ""

    def _low(self) -> str:
        for folder, free in self.figures():
            if free < self._floor:
                return (
                    f"{folder} has only {free // 2**20} MiB free; {self._floor // 2**20} MiB are "
                    "needed (keep.free_bytes); free some space, then the center continues"
                )
        return ""

    def _begin(self, why: str, kind: type[Unavailable]) -> None:
        if not self.trouble:
            log.error("%s: %s", kind.title, why)
            self.trouble, self._kind = why, kind

    async def _takes_writes(self) -> bool:
        """Whether writes succeed. After a failed write the figures are not enough: the database
        may be on another disk."""
        if self._refused_at is None:
            return True
        if self._clock.monotonic() - self._refused_at < TRIAL_EVERY:
            return False
        self._refused_at = self._clock.monotonic()
        try:
            await self._alert(f"over: {self.trouble}")
        except (DiskFull, DiskFailed):
            return False
        return True

    async def _alert(self, detail: str) -> None:
        await self._store.alerts.raise_(self._kind.code, self._center, detail, self._clock.now())
