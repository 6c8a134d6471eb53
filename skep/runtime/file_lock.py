"""A lock on a file. The kernel frees it when its holder ends, however it ends.

Any process can take one; taking it never waits.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def holder_of(path: Path) -> str:
    """The process id and the command that the holder wrote; "" when it wrote nothing."""
    try:
        return " ".join(path.read_text(errors="replace").split())[:300]
    except OSError:
        return ""


def try_lock(path: Path, about: str = "") -> int | None:
    """The open file that holds the lock, to be closed at the end; None when another process has
    it. The holder writes `about` into it, for processes that come later."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    if about:
        # The lock works without it: a full disk is reported by the next write that matters.
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{about}\n".encode(), 0)
    return file
