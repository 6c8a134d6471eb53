"""The collector of long-lived processes."""

from __future__ import annotations

import subprocess
import sys


def test_what_a_start_left_is_not_looked_through_again() -> None:
    """In a process of its own: it changes the collector for good. Cycles are still found."""
    code = (
        "import gc, weakref\n"
        "from skep.runtime.garbage_collection import YOUNGEST, collect_less_often\n"
        "class Ring: pass\n"
        "collect_less_often()\n"
        "assert gc.get_freeze_count() > 1000\n"
        "assert gc.get_threshold()[0] == YOUNGEST\n"
        "ring = Ring(); ring.self = ring; gone = weakref.ref(ring); del ring\n"
        "kept = [[] for _ in range(2 * YOUNGEST)]\n"
        "assert gone() is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
