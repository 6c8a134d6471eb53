"""A crawl with Skep: `skep up` as a child, the spider here. Arguments: start URL, css or links.

Both spiders extract the title and every link of a page. `css` has the selectors of the peer's
spider, `links` uses Skep's own link extraction.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import uvloop

from bench.centers import CenterDoor, clean_environment, door_of
from bench.figures import check
from bench.processes import ROOT
from skep import Request, Response, Spider
from skep.runtime.clock import SystemClock
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi

RUN = "bench"
PART = 10_000


class ByCss(Spider):
    """Like the peer's spider."""

    name = "by-css"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")


class ByLinks(Spider):
    """With Skep's own link extraction."""

    name = "by-links"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.title}
        for link in response.links():
            yield Request(link)


def cpu_of(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


async def crawl(
    spider: Spider, door: CenterDoor, processes: list[psutil.Process]
) -> dict[str, Any]:
    clock, rng = SystemClock(), Random(1)
    client = CenterClient([door.url], door.token, clock, rng)
    engine = SpiderEngine(spider, HttpQueue(CenterApi(client.transport), RUN, clock, rng), clock)
    used, begun = sum(map(cpu_of, processes)), time.perf_counter()
    end = await engine.run()
    seconds, used = time.perf_counter() - begun, sum(map(cpu_of, processes)) - used
    await client.close()
    check("finished", end.reason, end.sentence)
    return {"seconds": seconds, "cpu": used, "pages": engine.stats.pages}


def items_of(door: CenterDoor) -> list[str]:
    """URLs of all items, as the center stores them."""
    urls: list[str] = []
    after = 0
    while page := door.call("GET", f"/api/v1/runs/{RUN}/items?after={after}&limit={PART}")["items"]:
        urls += [item["data"]["url"] for item in page if item["data"]["title"]]
        after = page[-1]["id"]
    return urls


def main(start: str, way: str) -> dict[str, Any]:
    spider = {"css": ByCss, "links": ByLinks}[way]()
    spider.start_urls = [start]
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        command = [sys.executable, "-m", "skep", "up", "--data", folder, "--port", "0"]
        quiet = subprocess.DEVNULL
        environment = clean_environment()
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=quiet, stderr=quiet
        ) as child:
            try:
                door = door_of(Path(folder), child)
                _await_agent(door)
                found = uvloop.run(
                    crawl(spider, door, [psutil.Process(child.pid), psutil.Process(os.getpid())])
                )
                urls = items_of(door)
                ledger = door.call("GET", "/api/v1/ledger?audit=true")
            finally:
                child.terminate()
    check(0, ledger["unaccounted"], "requests missing in the ledger")
    check(found["pages"], ledger["ledger"]["done"], "requests that are done")
    return {**found, "items": len(urls), "unique": len(set(urls))}


def _await_agent(door: CenterDoor) -> None:
    while not any(line["alive"] for line in door.call("GET", "/api/v1/agents")["items"]):
        time.sleep(0.05)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
