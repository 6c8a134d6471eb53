"""A file system of a few megabytes, which a test can fill to the last byte.

It is a tmpfs, so it needs permission to mount (root). Without it there is no equivalent: a limit of
the file size (RLIMIT_FSIZE) causes another error at another place, so `NotPermitted` says why, and
the test is skipped. ENOSPC is as on any disk; a tmpfs cannot simulate a disk that loses unsynced
data (see `power_cut` for that).

    with small_disk(folder, megabytes=20) as disk:
        fill(disk / "filler", leave=4096)
        (disk / "filler").unlink()
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skep.testing.private import NotPermitted, find_program

PAGE = 4096


@contextmanager
def small_disk(folder: Path, megabytes: int = 20) -> Iterator[Path]:
    """Mounted at `folder` until the block ends; raises NotPermitted."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs"]
    command = [find_program("mount", "mount"), *kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPermitted(f"no small disk: {done.stderr.strip() or 'mount failed'}")
    try:
        yield folder
    finally:
        # Lazily: a process that is being killed may still have an open file there.
        unmount = [find_program("umount", "mount"), "-l", str(folder)]
        subprocess.run(unmount, check=True)


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written there."""
    figures = os.statvfs(folder)
    return figures.f_bavail * figures.f_frsize


def fill(file: Path, leave: int = 0) -> int:
    """Write until only `leave` bytes are free; returns the size of the file."""
    with file.open("ab", buffering=0) as out:
        try:
            while free_bytes(file.parent) - leave >= PAGE:
                out.write(bytes(min(2**20, (free_bytes(file.parent) - leave) // PAGE * PAGE)))
        except OSError:  # another process used the last page
            pass
        return out.tell()
