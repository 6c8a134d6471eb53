"""A wrong clock for one process, by libfaketime; all other clocks stay right.

For tests of processes: pass `env` to `CenterProcess` or `AgentProcess`. Only the wall clock is
moved, as when it is set; the monotonic clock continues, as on a real machine.

    clock = SkewedClock(folder / "clock", seconds=3600)      # an hour ahead
    agent = await fleet.agent("a", clock.env)
    clock.set(-3600)                                         # and now it jumps back

It never changes the machine's own clock.
"""

from __future__ import annotations

import os
from pathlib import Path

from skep.testing.private import ServerMissing

LIBRARY = "libfaketime.so.1"
PLACES = ("/usr/lib", "/usr/local/lib")


def find_library() -> Path:
    """The path of libfaketime; raises ServerMissing."""
    for pattern in ("faketime", "*/faketime"):  # Debian has a folder for each architecture
        for place in PLACES:
            if found := sorted(Path(place).glob(f"{pattern}/{LIBRARY}")):
                return found[0]
    raise ServerMissing(LIBRARY, "libfaketime")


class SkewedClock:
    """`seconds` ahead of the machine, or behind it; the process reads `file`."""

    def __init__(self, file: Path, seconds: float = 0.0) -> None:
        self._library = find_library()
        self._file = file
        self.set(seconds)

    def set(self, seconds: float) -> None:
        """Set the offset from now on; the file is replaced atomically, because it is read often."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}\n")
        fresh.replace(self._file)

    @property
    def env(self) -> dict[str, str]:
        """Variables for a process; its children have the same clock."""
        preload = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{self._library} {preload}".strip(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # Both spellings: the name changed between versions.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
