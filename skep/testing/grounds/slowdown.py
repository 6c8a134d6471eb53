"""How much slower than alone a process is on this machine at the moment.

For tests that hold a promise in seconds. On an idle machine the bound is the promise itself; where
other tests share the processors it grows by what they take away, and by nothing else.
"""

from __future__ import annotations

import os
import sys
import time


def slowdown() -> float:
    """Seconds that a short Python process takes, for each second of processor time that it
    uses: 1.0 on an idle machine. Blocks while that process runs."""
    began = time.monotonic()
    words = [sys.executable, "-c", "import asyncio, json, email.message"]
    pid = os.posix_spawn(sys.executable, words, os.environ)
    _, status, used = os.wait4(pid, 0)
    assert status == 0, status
    return max(1.0, (time.monotonic() - began) / (used.ru_utime + used.ru_stime))
