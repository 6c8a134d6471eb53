"""The agent's download path for a list of pages. Arguments: base URL, pages, concurrency, `bare` to
leave the WARC frames out, which shows their cost, and `gzip` to check that bodies were stored as
received and decode to complete pages.

As in an agent: one downloader for one run on uvloop, with a new download for each that ended.
Frames are made and discarded here; another benchmark sends them.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from random import Random

import uvloop

from bench.figures import check
from skep.archive.records import read_records, split_response, split_stored
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Downloader, Fetched, Kind
from skep.downloaders.registry import kinds
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import EgressSettings
from skep.testing.site_pages import PAGE_BYTES

LOOPBACK = ("127.0.0.0/8",)


class Crowd:
    """Keeps `width` downloads active until all pages are done."""

    def __init__(self, downloader: Downloader, works: list[Work], width: int) -> None:
        self._downloader = downloader
        self._left: Iterator[Work] = iter(works)
        self._width = width
        self._open = 0
        self._ended = asyncio.Event()
        self.good = 0
        self.received = 0
        self.frame_bytes = 0
        self.last = b""
        self.faults: list[str] = []

    async def run(self) -> None:
        for _ in range(self._width):
            self._next()
        await self._ended.wait()

    def _next(self) -> None:
        work = next(self._left, None)
        if work is None:
            if not self._open:
                self._ended.set()
            return
        self._open += 1
        self._downloader.start(work, self._done)

    def _done(self, fetched: Fetched) -> None:
        self._open -= 1
        outcome = fetched.outcome
        if outcome.failure or outcome.status != 200 or not fetched.frames:
            self.faults.append(f"{outcome.failure} {outcome.status} {outcome.detail}")
        else:
            self.good += 1
            self.received += outcome.received
            self.frame_bytes += len(fetched.frames)
            self.last = fetched.frames
        self._next()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def kind(*, bare: bool) -> Kind:
    """As in agents; or with a placeholder for frames."""
    if bare:
        policy = EgressPolicy(allow=LOOPBACK)
        return HttpKind(SystemClock(), Random(1), policy, keep=lambda _exchange: b"-")
    return kinds(SystemClock(), Random(1), EgressSettings(allow=LOOPBACK))["http"]


def check_stored(frames: bytes) -> None:
    """Check that a body is stored as received, and decodes to a complete page."""
    record = read_records(frames)[0]
    stored, page = split_stored(record).body, split_response(record).body
    check(True, len(stored) < len(page) and len(page) > PAGE_BYTES * 0.95, "stored as received")


async def measure(base: str, pages: int, width: int, *, bare: bool, gzip: bool) -> dict[str, float]:
    downloader = kind(bare=bare).open("bench", RunSettings(host_concurrency=width))
    warm = Crowd(downloader, [Work(n, f"{base}{n}") for n in range(width)], width)
    await warm.run()
    crowd = Crowd(downloader, [Work(n, f"{base}{n}") for n in range(pages)], width)
    used, begun = cpu(), time.perf_counter()
    await crowd.run()
    used, seconds = cpu() - used, time.perf_counter() - begun
    await downloader.close()
    check([], crowd.faults[:3], "downloads that failed")
    if gzip:
        check_stored(crowd.last)
    return {
        "cpu": used,
        "seconds": seconds,
        "pages": crowd.good,
        "bytes": crowd.received,
        "frame_bytes": crowd.frame_bytes,
    }


if __name__ == "__main__":
    place, count, at_a_time = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    flags = {name: name in sys.argv[4:] for name in ("bare", "gzip")}
    asked = measure(place, count, at_a_time, **flags)
    print(json.dumps(uvloop.run(asked)))
