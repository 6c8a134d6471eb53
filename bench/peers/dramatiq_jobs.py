"""dramatiq, two processes with eight threads each, its default. Run by its own Python.

Arguments: Redis URL, jobs.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.peers import timing


def main(url: str, count: int) -> dict[str, float]:
    file = timing.counter()
    os.environ["BENCH_BROKER"] = url
    from bench.peers.dramatiq_tasks import fetch

    for uri in timing.urls(count):
        fetch.send(uri)
    command = [sys.executable, "-m", "dramatiq", "bench.peers.dramatiq_tasks", "--processes", "2"]
    return timing.measure([command], count, file)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
