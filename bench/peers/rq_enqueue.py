"""rq with its fastest official method: `enqueue_many` in batches. Run by rq's own Python.

The measurement starts with a list of URLs and ends when the last batch is in Redis.
Arguments: Redis URL, jobs, jobs in a batch.
"""

from __future__ import annotations

import json
import sys
import time

from redis import Redis
from rq import Queue  # type: ignore[import-not-found]  # lives in the peer's environment


def enqueue(queue: Queue, urls: list[str], batch: int) -> None:
    for start in range(0, len(urls), batch):
        chunk = urls[start : start + batch]
        queue.enqueue_many([Queue.prepare_data("tasks.fetch", (url,)) for url in chunk])


def measure(redis_url: str, count: int, batch: int) -> dict[str, float]:
    urls = [f"http://site{n % 97}.example/catalogue/page/{n}?ref=list" for n in range(count)]
    line = Redis.from_url(redis_url)
    warm = Queue("warm", connection=line)
    enqueue(warm, urls[:100], batch)
    queue = Queue("cold", connection=line)
    begun = time.perf_counter()
    enqueue(queue, urls, batch)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "queued": queue.count}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
