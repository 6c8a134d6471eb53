"""`bulk`: how long a bulk retry takes, and what it costs other work.

A center on SQLite, and one on PostgreSQL, holds 200,000 dead requests in 500 groups. One client
hands in requests in batches of 100 without a pause: alone, while an operation retries all dead
requests, and alone again. `ratio` is the client's rate meanwhile over its mean rate alone: a
machine that has other work, or a store that has grown, counts on both sides.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.centers import CenterDoor, running_center
from bench.figures import Result, Sample, check
from bench.options import Options
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.sql.store import SqlStore
from skep.testing.grounds.dead_requests import add_dead
from skep.testing.servers import postgres

DEAD, GROUPS = 200_000, 500
BATCH = 100
#: Seconds for which the client works alone.
ALONE = 10.0
SECONDS_BAR, RATIO_BAR = 30.0, 0.8
LONGEST = 300.0


async def fill(url: str, count: int) -> None:
    """A run with dead requests."""
    store = SqlStore(url)
    await store.open()
    now = time.time() - 60
    await store.runs.create(Run("dead", "", RunState.RUNNING, RunSettings(), now))
    await add_dead(store, "dead", count, now, GROUPS)
    await store.close()


class Client:
    """Hands in requests without a pause, in a thread of its own."""

    def __init__(self, center: CenterDoor) -> None:
        self._center = center
        self._ends = threading.Event()
        self.accepted = 0

    def _work(self) -> None:
        number = 0
        while not self._ends.is_set():
            urls = [f"http://site{n % 97}.example/{number}/{n}" for n in range(BATCH)]
            self.accepted += self._center.call("POST", "/requestqueue/load", urls)["new"]
            number += 1

    @contextmanager
    def working(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def rate(self, seconds: float) -> float:
        before = self.accepted
        time.sleep(seconds)
        return (self.accepted - before) / seconds


def retry(center: CenterDoor, count: int) -> float:
    """Seconds from the call until the operation is done."""
    asked = {"resource": "failures", "act": "retry", "filter": "run:dead", "dry_run": False}
    begun = time.perf_counter()
    number = center.call("POST", "/api/v1/operations", asked)["operation"]["id"]
    while True:
        view = center.call("GET", f"/api/v1/operations/{number}")
        if view["ended_at"] or time.perf_counter() - begun > LONGEST:
            break
        time.sleep(0.2)
    seconds = time.perf_counter() - begun
    done = sum(one["count"] for one in view["results"] if one["outcome"] == "done")
    check(count, done, "requests retried")
    return seconds


def once(url: str = "", count: int = DEAD, alone: float = ALONE) -> Sample:
    """On this store; "" = SQLite in the folder of the center."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        asyncio.run(fill(url or f"sqlite:///{folder}/skep.db", count))
        settings = {"SKEP_STORE_URL": url} if url else {}
        with running_center(Path(folder), **settings) as center:
            center.call("PUT", "/api/v1/runs/load", {})
            client = Client(center)
            with client.working():
                client.rate(alone / 5)  # the first calls are slower
                before = client.rate(alone / 2)
                begun, accepted = time.perf_counter(), client.accepted
                seconds = retry(center, count)
                meanwhile = (client.accepted - accepted) / (time.perf_counter() - begun)
                after = client.rate(alone / 2)
            ledger = center.call("GET", "/api/v1/ledger?audit=true&run=dead")["ledger"]
            check(0, ledger["dead"], "dead requests left")
    sides = {"before": before, "after": after}
    return {"seconds": seconds, "alone": (before + after) / 2, "meanwhile": meanwhile, **sides}


def on_postgres() -> Sample:
    with postgres(durable=True) as server:
        return once(server.fresh_database())


def run(options: Options) -> Result:
    rounds = min(options.rounds, 3)
    stores = {"sqlite": once, "postgresql": on_postgres}
    samples = {name: [measure() for _ in range(rounds)] for name, measure in stores.items()}
    told = {name: _told(found) for name, found in samples.items()}
    ratio = min(one["ratio"] for one in told.values())
    seconds = max(one["seconds"] for one in told.values())
    return Result(
        name="bulk",
        unit="requests/s retried",
        ours=DEAD / seconds,
        peer=None,
        floor=None,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR and seconds <= SECONDS_BAR,
        meaning="requests/s accepted during a bulk retry / without one, on the slower store",
        more={"seconds": seconds, "seconds_bar": SECONDS_BAR, "rounds": rounds, **told},
    )


def _told(samples: list[Sample]) -> dict[str, float]:
    """Medians of one store."""
    found = {name: median(one[name] for one in samples) for name in samples[0]}
    return {**found, "ratio": median(one["meanwhile"] / one["alone"] for one in samples)}
