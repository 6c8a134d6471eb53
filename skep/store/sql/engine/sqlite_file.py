"""Prepares the file of an SQLite store: it exists, is writable, and is private.

Run by centers only. SQLite gives its `-wal` and `-shm` files the mode of this one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from skep.errors import ConfigurationError, DiskFailed, DiskFull
from skep.runtime.files import OWNER_ONLY

_BESIDE = ("", "-wal", "-shm")


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
