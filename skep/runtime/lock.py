"""A lock on a file, freed by the kernel when its holder ends, however it ends.

Any process may take one; taking it never waits.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """The open file that holds the lock, to be closed at the end; None when it is taken."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
