"""celery, prefork with two processes. Run by its own Python. Arguments: Redis URL, jobs."""

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
    from bench.peers.celery_tasks import app, fetch

    with app.producer_or_acquire() as producer:
        for uri in timing.urls(count):
            fetch.apply_async((uri,), producer=producer)
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "bench.peers.celery_tasks",
        "worker",
        "-P",
        "prefork",
    ]
    command += ["-c", "2", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return timing.measure([[*command, "-l", "CRITICAL"]], count, file)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
