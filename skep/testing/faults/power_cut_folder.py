"""A power cut for a whole data folder: data that was not synced is lost or empty.

It observes `os.fsync` and `os.fdatasync` of this process. A file keeps its content of the last
sync. A name whose folder was not synced since may exist or not. The files of SQLite are copied
unchanged: `power_cut` covers them, because SQLite syncs without Python.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

SQLITE = (".db", ".db-wal", ".db-journal")
#: Locks belong to a process and do not survive a restart.
SKIPPED = (".lock", ".db-shm")


@dataclass
class FolderImages:
    """Images of `folder`, one for each cut, below `place`."""

    folder: Path
    place: Path
    rng: Random
    #: A cut follows one sync in this number.
    every: int = 1
    images: list[Path] = field(default_factory=list)
    _safe: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _names: dict[Path, dict[str, tuple[int, int]]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _syncs: int = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe every sync of this process until the block ends."""
        whole, data = os.fsync, os.fdatasync

        def fsync(fd: Any) -> None:
            self._before(fd)
            whole(fd)

        def fdatasync(fd: Any) -> None:
            self._before(fd)
            data(fd)

        os.fsync, os.fdatasync = fsync, fdatasync
        try:
            yield
        finally:
            os.fsync, os.fdatasync = whole, data

    def _before(self, file: int) -> None:
        """A cut may come just before a sync; the sync then makes the data durable."""
        with self._lock:
            self._syncs += 1
            if self._syncs % self.every == 0:
                self.cut()
            self._synced(file)

    def _synced(self, file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        about = os.fstat(file)
        if stat.S_ISDIR(about.st_mode):
            self._names[path] = {entry.name: _key(entry.stat()) for entry in os.scandir(path)}
        else:
            self._safe[_key(about)] = path.read_bytes()

    def cut(self) -> Path:
        """Cut the power now; return the folder that a restart would find."""
        with self._lock:
            image = self.place / str(len(self.images))
            self._copy(self.folder.resolve(), image)
            self.images.append(image)
            return image

    def _copy(self, source: Path, target: Path) -> None:
        target.mkdir(parents=True)
        synced = self._names.get(source, {})
        for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                self._copy(source / entry.name, target / entry.name)
            elif entry.name.endswith(SQLITE):
                shutil.copy(entry.path, target / entry.name)
            elif not entry.name.endswith(SKIPPED):
                key = _key(entry.stat())
                if synced.get(entry.name) == key or self.rng.random() < 0.5:
                    (target / entry.name).write_bytes(self._safe.get(key, b""))


def _key(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino
