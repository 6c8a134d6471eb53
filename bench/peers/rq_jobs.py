"""rq: two workers, forking for each job (`fork`) or not (`simple`). Run by its own Python.

Arguments: Redis URL, jobs, fork or simple.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from redis import Redis
from rq import Queue  # type: ignore[import-not-found]  # lives in the peer's environment

from bench.peers import timing

WORKERS = {"fork": "rq.worker.Worker", "simple": "rq.worker.SimpleWorker"}


def main(url: str, count: int, way: str) -> dict[str, float]:
    file = timing.counter()
    queue = Queue("work", connection=Redis.from_url(url))
    uris = timing.urls(count)
    for start in range(0, count, 1000):
        part = uris[start : start + 1000]
        data = [Queue.prepare_data("bench.peers.noop.fetch", (uri,), result_ttl=0) for uri in part]
        queue.enqueue_many(data)
    program = str(Path(sys.executable).parent / "rq")
    command = [program, "worker", "-u", url, "-w", WORKERS[way], "--quiet", "work"]
    return timing.measure([command, command], count, file)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
