"""`events`: what live updates cost, and how late they are.

200 streams watch one list of runs at a center on SQLite, from one process, while ten runs a second
change their state. `ratio` is the share of a core that the center needs for it, beyond what the
changes cost without streams.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from random import Random

import psutil

from bench.centers import CenterDoor, running_center
from bench.figures import Result, Sample, check
from bench.options import Options
from skep.runtime.clock import SystemClock
from skep.wire.api.monitoring.events import WhichEvents
from skep.wire.client import CenterClient
from skep.wire.client.events import read_events

STREAMS, RUNS, CHANGES = 200, 50, 10
SECONDS = 20.0
CORE_BAR, DELAY_BAR = 0.2, 1.0


class Watching:
    """All streams, and when each of them saw a change."""

    def __init__(self) -> None:
        self.changed_at: dict[tuple[str, str], float] = {}
        self.delays: list[float] = []
        self._pages = 0
        self.all_opened = asyncio.Event()

    def _opened(self) -> None:
        self._pages += 1
        if self._pages == STREAMS:
            self.all_opened.set()

    async def read(self, client: CenterClient) -> None:
        async with client.api.events.watch(WhichEvents(["runs"])) as download:
            async for event in read_events(download.pieces):
                if event.event == "page":
                    self._opened()
                now = time.perf_counter()
                for row in event.data.changed:
                    at = self.changed_at.get((row["id"], row["state"]))
                    if at is not None:
                        self.delays.append(now - at)


def cpu_of(center: CenterDoor) -> float:
    used = psutil.Process(center.pid).cpu_times()
    return float(used.user + used.system)


async def change(center: CenterDoor, client: CenterClient, watching: Watching) -> float:
    """Pause and continue runs in turn; returns the share of a core that the center used."""
    begun, cpu = time.perf_counter(), cpu_of(center)
    number = 0
    while (now := time.perf_counter()) < begun + SECONDS:
        run, verb = f"r{number % RUNS}", ("pause", "continue")[number // RUNS % 2]
        view = await client.api.runs.change(run, verb)  # type: ignore[arg-type] # one of two words
        watching.changed_at = {
            key: at for key, at in watching.changed_at.items() if key[0] != run
        } | {(run, str(view.run.state)): time.perf_counter()}
        number += 1
        await asyncio.sleep(max(0.0, begun + number / CHANGES - now))
    return (cpu_of(center) - cpu) / (time.perf_counter() - begun)


async def measure(center: CenterDoor) -> Sample:
    clock, rng = SystemClock(), Random(1)
    async with CenterClient([center.url], center.token, clock, rng) as client:
        for number in range(RUNS):
            center.call("PUT", f"/api/v1/runs/r{number}", {})
        alone = await change(center, client, Watching())
        watching = Watching()
        tasks = [asyncio.create_task(watching.read(client)) for _ in range(STREAMS)]
        await watching.all_opened.wait()
        used = await change(center, client, watching)
        await asyncio.sleep(2.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    delays = sorted(watching.delays)
    least = STREAMS * SECONDS * CHANGES / 2
    check(True, len(delays) > least, "changes were seen by every stream")
    p95 = delays[int(len(delays) * 0.95)]
    return {"alone": alone, "used": used, "p95": p95, "seen": float(len(delays))}


def run(_: Options) -> Result:
    with (
        tempfile.TemporaryDirectory(prefix="skep-bench-") as folder,
        running_center(Path(folder)) as center,
    ):
        found = asyncio.run(measure(center))
    cost = found["used"] - found["alone"]
    return Result(
        name="events",
        unit="share of a core",
        ours=cost,
        peer=None,
        floor=None,
        ratio=cost,
        bar=CORE_BAR,
        ok=cost <= CORE_BAR and found["p95"] <= DELAY_BAR,
        meaning="CPU of the center for 200 event streams with 10 changes/s; less is better",
        more={**found, "delay_bar": DELAY_BAR, "streams": STREAMS},
    )
