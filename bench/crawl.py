"""`crawl`: a site of 10,000 pages, links followed, titles extracted, compared with Scrapy.

Ours: `skep up` (center and agent) in one process and the spider in another; every request and item
durable in SQLite (FULL), every body in the archive. Peer: Scrapy, tuned (uvloop, cookies, retries,
redirects and referer off, CONCURRENT_ITEMS=4, 64 connections), in memory, bodies discarded. Both
use the same pages of 10 KB with 21 links each from the same nginx and the same selectors; `links`
is ours with its own link extraction. Both must find every page exactly once (both also request the
front page, which nginx refuses). CPU is that of all processes of the crawler, without start-up.
scrapy-redis does the same with two processes and one Redis, only once because it takes long.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.fetch import TwoWorkers, write_pages
from bench.figures import Result, Sample, alternate, check, neat
from bench.options import Options
from bench.processes import Peer, own
from skep.testing.servers import redis

PAGES = 10_000
RATIO_BAR = 6.0

SCRAPY = Peer("scrapy", ("scrapy==2.19.0", "uvloop==0.23.0"))
SCRAPY_REDIS = Peer("scrapy-redis", ("scrapy-redis==0.9.1", *SCRAPY.packages))


def sample(found: dict[str, float]) -> Sample:
    check(PAGES, found["pages"], "pages crawled")
    check(PAGES, found["items"], "items found")
    check(PAGES, found["unique"], "different pages among the items")
    return {"rate": PAGES / found["seconds"], "cpu": found["cpu"] / PAGES * 1000}


def run(options: Options) -> Result:
    SCRAPY.prepare()
    SCRAPY_REDIS.prepare()
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        write_pages(Path(folder))
        with TwoWorkers(root=Path(folder)) as server:
            start = f"{server.url}page/0"
            found = alternate(
                {
                    "ours": lambda: sample(own("bench.children.crawl", start, "css")),
                    "peer": lambda: sample(SCRAPY.run("scrapy_crawl", start)),
                    "links": lambda: sample(own("bench.children.crawl", start, "links")),
                },
                options.rounds,
            )
            with redis() as bus:
                shared = sample(SCRAPY_REDIS.run("scrapy_redis_crawl", start, bus.url))
    rate = {name: figures["rate"] for name, figures in found.items()}
    ratio = rate["ours"].median / rate["peer"].median
    return Result(
        name="crawl",
        unit="pages/s",
        ours=rate["ours"].median,
        peer=rate["peer"].median,
        floor=None,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR,
        meaning="our pages/s, durable and archived / Scrapy's, tuned, in memory",
        more={
            "links_ratio": neat(rate["links"].median / rate["peer"].median),
            "spread": {name: figure.told() for name, figure in rate.items()},
            "cpu_per_1000_pages": {name: one["cpu"].told() for name, one in found.items()},
            "scrapy_redis_two_processes": {name: neat(value) for name, value in shared.items()},
            "peer_version": SCRAPY.packages[0],
            "rounds": options.rounds,
        },
    )
