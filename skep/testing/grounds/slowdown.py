"""How much slower a process is on this machine at the moment than alone.

For tests of limits in seconds. On an idle machine the bound is the limit itself; if other tests
share the processors, it grows by their share only.
"""

from __future__ import annotations

import os
import sys
import time


def slowdown() -> float:
    """Seconds of a short Python process per second of its processor time: 1.0 on an idle machine.
    Blocks while that process runs."""
    began = time.monotonic()
    words = [sys.executable, "-c", "import asyncio, json, email.message"]
    pid = os.posix_spawn(sys.executable, words, os.environ)
    _, status, used = os.wait4(pid, 0)
    assert status == 0, status
    return max(1.0, (time.monotonic() - began) / (used.ru_utime + used.ru_stime))
