"""The file of an SQLite store: it exists, is writable and private, and stays the same file.

Run by centers only. SQLite gives its `-wal` and `-shm` files the mode of this one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from skep.errors import ConfigurationError, DiskFailed, DiskFull, StoreDown
from skep.runtime.files import OWNER_ONLY

_BESIDE = ("", "-wal", "-shm")


class StoreFile:
    """The file that was opened. SQLite itself continues to write into a deleted one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = _identity(path)
        self._wal = Path(f"{path}-wal")
        self._had_wal = False

    def check(self) -> None:
        """Raises StoreDown when what was committed last is not in the files at this path."""
        if _identity(self._path) != self._opened:
            raise self._lost(self._path)
        # After a commit it exists, in journal mode WAL: the last commits are in it.
        if self._wal.exists():
            self._had_wal = True
        elif self._had_wal:
            raise self._lost(self._wal)

    def _lost(self, path: Path) -> StoreDown:
        return StoreDown(
            f"the store file {path} was deleted, moved or replaced; move it back, or stop the "
            "center and restore a backup (`skep restore`)"
        )


def make_ready(path: Path) -> None:
    """Raises ConfigurationError, DiskFull or DiskFailed, with the path."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
        for suffix in _BESIDE:
            _make_private(Path(f"{path}{suffix}"))
    except OSError as error:
        said = f"cannot open the store {path}: {error.strerror}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"{said}; free some space") from error
        if error.errno in {errno.EROFS, errno.EIO}:
            raise DiskFailed(said) from error
        raise ConfigurationError(f"{said}; check store.url and its folder's mode") from error


def _make_private(path: Path) -> None:
    if path.exists() and path.stat().st_mode & 0o077:
        path.chmod(OWNER_ONLY)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None when there is no such file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino
