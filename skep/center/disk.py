"""Is there room on the disks? When there is not, the center takes and hands out no more.

It looks every second at the folders of data and archive, and hears of every write that
failed for want of space, in the database too. Results of what agents have in hand are
still taken while they fit. It recovers by itself, and never needs a restart.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from skep.archive.registry import folder_of, is_s3
from skep.errors import DiskFull, SkepError
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store

log = logging.getLogger("skep.center")

ALERT = "disk_full"
#: Between two trials whether a database that was full takes writes again, in seconds.
TRIAL_EVERY = 5.0

FreeBytes = Callable[[Path], int]


def free_bytes(folder: Path) -> int:
    """Of the file system of a folder, or of the nearest one above it that exists."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    return shutil.disk_usage(there).free


def disk_guard(name: str, settings: Settings, store: Store, clock: Clock) -> DiskGuard:
    """Over every folder that this center writes to."""
    folders = [Path(settings.data)]
    if not is_s3(settings.archive_url):
        folders.append(folder_of(settings.archive_url))
    return DiskGuard(name, folders, settings.keep.free_bytes, store, clock)


class DiskGuard:
    """What one center knows about its disks."""

    def __init__(
        self,
        center: str,
        folders: Iterable[Path],
        floor: int,
        store: Store,
        clock: Clock,
        free: FreeBytes = free_bytes,
    ) -> None:
        self._center = center
        self._folders = tuple(dict.fromkeys(path.absolute() for path in folders))
        self._floor = floor
        self._store = store
        self._clock = clock
        self._free = free
        #: Why nothing is taken just now; "" = all is well.
        self.trouble = ""
        self._refused_at: float | None = None
        self._told = ""

    def check(self) -> None:
        """Raises DiskFull while there is no room."""
        if self.trouble:
            raise DiskFull(self.trouble)

    def heard(self, error: SkepError) -> None:
        """A write failed for want of space, whatever the figures say."""
        if isinstance(error, DiskFull) and not self.trouble:
            self.trouble = error.detail
            self._refused_at = self._clock.monotonic()
            log.error("the disk is full: %s", error.detail)

    def figures(self) -> list[tuple[str, int]]:
        """(folder, free bytes)."""
        return [(str(folder), self._free(folder)) for folder in self._folders]

    async def look(self) -> None:
        """Once a second: find out, say it, and find out when it is over."""
        low = self._low()
        if low:
            self._begin(low)
        elif self.trouble and await self._takes_writes():
            log.warning("there is room on the disk again: the center goes on")
            self.trouble = self._told = ""
            self._refused_at = None
        if self.trouble and self._told != self.trouble:
            await self._alert(self.trouble)
            self._told = self.trouble

    def _low(self) -> str:
        for folder, free in self.figures():
            if free < self._floor:
                return (
                    f"{folder} has only {free // 2**20} MiB free, {self._floor // 2**20} are "
                    "needed (keep.free_bytes); make room, then it goes on by itself"
                )
        return ""

    def _begin(self, why: str) -> None:
        if not self.trouble:
            log.error("the disk is full: %s", why)
            self.trouble = why

    async def _takes_writes(self) -> bool:
        """After a refused write the figures are not enough: a database may be elsewhere."""
        if self._refused_at is None:
            return True
        if self._clock.monotonic() - self._refused_at < TRIAL_EVERY:
            return False
        self._refused_at = self._clock.monotonic()
        try:
            await self._alert(f"over: {self.trouble}")
        except DiskFull:
            return False
        return True

    async def _alert(self, detail: str) -> None:
        await self._store.alerts.raise_(ALERT, self._center, detail, self._clock.now())
