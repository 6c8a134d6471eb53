"""Small files that must survive a power cut. Blocking: agents call these in a thread.

A file is written beside its place, synced, and moved there, and then the folder is synced:
a reader finds the old content or the new one, never half of it.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Raises OSError and leaves the old file, if any."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Durably; a file that is gone already is no error."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_or_none(path: Path) -> bytes | None:
    """The content, or None when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None
