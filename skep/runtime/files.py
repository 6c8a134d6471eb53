"""Small files of a data folder: the only function that writes them, and how they are read.

A file is written under a temporary name, synced and renamed, then its folder is synced: after a
kill or a power cut a reader finds the old content or the new one. Everything here blocks.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Readable by its owner only: most of these files are secrets or grant access.
OWNER_ONLY = 0o600
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


class UnreadableFile(Exception):
    """The text names the file and the problem."""


def write_durably(path: Path, data: bytes) -> None:
    """Returns when the data is on disk; raises OSError and leaves the old file, if any."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        _write_synced(fresh, data)
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if error.filename is None:  # `write` reports a full disk without a file name
            error.filename = str(path)
        raise


def _write_synced(path: Path, data: bytes) -> None:
    file = os.open(path, _FLAGS, OWNER_ONLY)
    try:
        os.fchmod(file, OWNER_ONLY)  # a file left by another process can have another mode
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file durably; a missing file is not an error."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_or_none(path: Path) -> bytes | None:
    """The content, or None when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def read_line(path: Path) -> str:
    """The text of a file that holds one line; raises UnreadableFile with the path in it."""
    try:
        text = path.read_text("utf-8").strip()
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not valid UTF-8 text") from error
    if not text:
        raise UnreadableFile(f"{path} is empty")
    return text


def make_private(folder: Path) -> bool:
    """Remove other users' access to a folder; True when that changed the mode."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = folder.stat().st_mode & 0o777
    if not mode & 0o077:
        return False
    folder.chmod(mode & 0o700)
    return True
