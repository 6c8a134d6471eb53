"""Lease and acknowledge through the center's own objects. Arguments: store URL, requests.

Fills a new database, then leases 20 blocks and reports 20 blocks until nothing is left, as agents
do. Only those two calls are timed: agents make the outcomes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from random import Random

import msgspec
import uvloop

from bench.enqueue import urls
from bench.figures import check
from bench.stopwatch import Stopwatch
from skep.archive.ports import CommittedEnd, RecordLocation, SetAside
from skep.bus.registry import open_bus
from skep.center.foundation import Foundation
from skep.center.services import Services, build
from skep.lanes.dispatch import lane_limits
from skep.model.block import BlockReport, Leased
from skep.model.request import Outcome, Work
from skep.model.run import NewRun
from skep.runtime.clock import SystemClock
from skep.settings import Settings, load
from skep.store.open_store import open_store

AGENT = "agent-1"
BLOCKS = 20
FILL = 10_000
_works = msgspec.msgpack.Decoder(list[Work])


class Untouched:
    """An archive for outcomes without bytes: any use of it is an error of the benchmark."""

    async def open(
        self,
        committed_end: CommittedEnd,  # noqa: ARG002
        *,
        store_is_empty: bool = False,  # noqa: ARG002
    ) -> list[SetAside]:
        raise AssertionError("the archive was opened")

    async def append(self, _blobs: Sequence[bytes]) -> list[RecordLocation]:
        raise AssertionError("the archive was written to")

    async def read(self, _segment: str, _offset: int, _length: int) -> bytes:
        raise AssertionError("the archive was read")

    async def delete(self, _segment: str) -> int | None:
        raise AssertionError("the archive was deleted from")

    async def close(self) -> None:
        raise AssertionError("the archive was closed")

    async def usage(self) -> tuple[int, int]:
        raise AssertionError("the archive was used")

    async def sizes(self, _segments: Sequence[str]) -> dict[str, int]:
        raise AssertionError("the archive was used")

    async def check(self) -> None:
        """It is always available."""

    def describe(self) -> str:
        return "untouched"


def settings_for(count: int) -> Settings:
    """Lanes with room for everything, so that packing is done before the measurement."""
    return load(flags={"lanes.low_limit": count, "lanes.dispatch_limit": count})


def assemble(url: str, count: int) -> Services:
    settings = settings_for(count)
    store = open_store(url, settings.store)
    bus = open_bus("memory://", lane_limits(settings.lanes))
    return build(Foundation("bench", settings, store, bus, Untouched(), SystemClock(), Random(1)))


async def fill(services: Services, count: int) -> None:
    """Accept and pack; afterwards every request is in a block and every block in a lane."""
    await services.store.open()
    await services.bus.open()
    await services.intake.open_run("drain", NewRun())
    # Names of this machine have no rate limit: this measures the lanes.
    offered = [url.replace(".example/", ".localhost/") for url in urls(count)]
    for start in range(0, count, FILL):
        await services.intake.accept("drain", offered[start : start + FILL])
    while await services.dispatcher.dispatch():
        pass


def report_of(block: Leased) -> BlockReport:
    """An agent's report about a block of successful downloads without bytes."""
    outcomes = [
        Outcome(work.id, status=200, elapsed_us=1500, sent=120, received=10_240)
        for work in _works.decode(block.body)
    ]
    for outcome in outcomes:
        outcome.address = "127.0.0.1"
    return BlockReport(block.id, block.token, outcomes)


async def drain(services: Services, lease: Stopwatch, report: Stopwatch) -> int:
    """Drain until nothing is left; returns the stored outcomes."""
    done = 0
    while True:
        with lease:
            leased = await services.leases.lease(AGENT, BLOCKS)
        if not leased:
            return done
        reports = [report_of(block) for block in leased]
        with report:
            verdicts = await services.ingest.take(AGENT, reports)
        check({"stored"}, {verdict.verdict for verdict in verdicts}, "verdicts")
        done += sum(verdict.stored for verdict in verdicts)


async def measure(url: str, count: int) -> dict[str, float]:
    services = assemble(url, count)
    await fill(services, count)
    lease, report = Stopwatch(), Stopwatch()
    done = await drain(services, lease, report)
    audit = await services.store.ledgers.audit()
    check(await services.store.ledgers.read(), audit, "the two ledgers")
    check((count, 0), (audit.done, audit.unaccounted), "done and unaccounted")
    await services.bus.close()
    await services.store.close()
    return {
        "lease": lease.seconds,
        "report": report.seconds,
        "seconds": lease.seconds + report.seconds,
        "cpu": lease.cpu + report.cpu,
        "done": done,
    }


async def only_fill(url: str, count: int) -> dict[str, float]:
    """Fill the same database for the floor."""
    services = assemble(url, count)
    await fill(services, count)
    await services.bus.close()
    await services.store.close()
    return {"filled": count}


if __name__ == "__main__":
    act = only_fill if "fill" in sys.argv[3:] else measure
    print(json.dumps(uvloop.run(act(sys.argv[1], int(sys.argv[2])))))
