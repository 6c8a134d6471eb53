"""`enqueue`: how fast requests are accepted and stored durably.

Ours: one POST of 7,000 URLs to a center in another process, on disk (SQLite, synchronous FULL) when
it answers. Peer: rq's `enqueue_many` of 7,000 jobs in batches of 1,000 into a Redis without
persistence. Both measurements start with a list of URLs. Floor: the same rows by sqlite3's
executemany, one transaction, FULL.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.centers import CenterDoor, running_center
from bench.figures import Result, Sample, alternate, check
from bench.options import Options
from bench.processes import Peer, own
from skep.testing.servers import Redis, redis

REQUESTS = 7_000
BULK = 50_000
BATCH = 1_000
RATIO_BAR, SECONDS_BAR, BULK_BAR = 3.0, 0.2, 50_000.0

RQ = Peer("rq", ("rq==2.12.0", "redis[hiredis]==8.1.0"))


def urls(count: int) -> list[str]:
    """The URLs, for this and the other programs."""
    return [f"http://site{n % 97}.example/catalogue/page/{n}?ref=list" for n in range(count)]


def ours() -> Sample:
    """A new center each time; a small batch first, as for rq."""
    with (
        tempfile.TemporaryDirectory(prefix="skep-bench-") as folder,
        running_center(Path(folder)) as center,
    ):
        seconds = hand_in(center, urls(REQUESTS))
    return {"seconds": seconds, "rate": REQUESTS / seconds}


def hand_in(center: CenterDoor, offered: list[str]) -> float:
    for run in ("warm", "cold"):
        center.call("PUT", f"/api/v1/runs/{run}", {})
    center.call("POST", "/requestqueue/warm", offered[:100])
    begun = time.perf_counter()
    accepted = center.call("POST", "/requestqueue/cold", offered)
    seconds = time.perf_counter() - begun
    check({"new": REQUESTS, "known": 0}, accepted, "accepted by the center")
    audit = center.call("GET", "/api/v1/ledger?audit=true&run=cold")["ledger"]
    check(REQUESTS, audit["accepted"], "rows in the store")
    return seconds


def bulk() -> Sample:
    """Validation and store in one process, without HTTP."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        found = own("bench.children.bulk", f"sqlite:///{folder}/skep.db", str(BULK))
    check(BULK, found["accepted"], "accepted in bulk")
    return {"rate": BULK / found["seconds"]}


def floor() -> Sample:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        found = own("bench.floors.insert", f"{folder}/floor.db", str(REQUESTS))
    check(REQUESTS, found["rows"], "rows of the floor")
    return {"rate": REQUESTS / found["seconds"]}


def peer(server: Redis) -> Sample:
    found = RQ.run("rq_enqueue", server.fresh_database(), str(REQUESTS), str(BATCH))
    check(REQUESTS, found["queued"], "jobs in rq's queue")
    return {"rate": REQUESTS / found["seconds"], "seconds": found["seconds"]}


def run(options: Options) -> Result:
    RQ.prepare()
    with redis() as server:
        found = alternate(
            {"ours": ours, "peer": lambda: peer(server), "floor": floor, "bulk": bulk},
            options.rounds,
        )
    ratio = found["ours"]["rate"].median / found["peer"]["rate"].median
    seconds = found["ours"]["seconds"].median
    bulk_rate = found["bulk"]["rate"].median
    return Result(
        name="enqueue",
        unit="requests/s",
        ours=found["ours"]["rate"].median,
        peer=found["peer"]["rate"].median,
        floor=found["floor"]["rate"].median,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR and seconds <= SECONDS_BAR and bulk_rate >= BULK_BAR,
        meaning="our requests/s over HTTP, durable / rq enqueue_many, in memory",
        more={
            "seconds": found["ours"]["seconds"].told(),
            "seconds_bar": SECONDS_BAR,
            "bulk_per_second": found["bulk"]["rate"].told(),
            "bulk_bar": BULK_BAR,
            "spread": {name: found[name]["rate"].told() for name in ("ours", "peer", "floor")},
            "peer_version": RQ.packages[0],
            "rounds": options.rounds,
        },
    )
