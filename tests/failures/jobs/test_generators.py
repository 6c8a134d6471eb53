"""Generators whose process, center or store dies on the way; kill -9, real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from skep.runtime.clock import SystemClock
from skep.store.ports import Store
from skep.testing.grounds.centers import running_center
from skep.testing.polling import until
from skep.testing.processes import CenterProcess, running_centers
from skep.wire.client import CenterClient

SECONDS = 90.0
COUNT = 120_000
JOBS = {
    "SKEP_JOBS_KEEP_EVERY": "0.1",
    "SKEP_JOBS_LEASE_SECONDS": "2",
    "SKEP_JOBS_RESTART_FIRST": "0.1",
}
CODE = "def generate(count):\n    for n in range(count):\n        yield f'http://127.0.0.1:9/{n}'\n"
SHELL = "seq 1 $SKEP_ARG_COUNT | sed 's|^|http://127.0.0.1:9/|'"
GENERATOR = {"kind": "python", "name": "many", "code": CODE, "arguments": {"count": COUNT}}


async def has_taken(store: Store, run: str, starts: int, taken: int) -> bool:
    found = await store.generations.of(run)
    return bool(found) and found[0].starts == starts and found[0].taken >= taken


async def test_a_generator_that_is_killed_begins_again(tmp_path: Path) -> None:
    """Issue 4: kill -9 of its process, in the middle, twice; nothing lost, nothing doubled."""
    flags = {"jobs_keep_every": 0.05, "jobs_restart_first": 0.05}
    async with running_center(tmp_path, **flags) as center:
        store, boxes = center.services.store, center.services.jobs.feeder.sources.boxes
        document = {"name": "j", "generators": [GENERATOR]}
        assert (await center.admin.put("/api/v1/jobs/j", document)).status == 200
        run = (await center.admin.post("/api/v1/jobs/j/run")).json()["run"]
        for starts, taken in ((1, 5_000), (2, 40_000)):
            await until(partial(has_taken, store, run, starts, taken), seconds=SECONDS, step=0.01)
            (pid,) = boxes.children
            os.kill(pid, signal.SIGKILL)
        (one,) = await until(
            lambda: store.generations.of(run),
            lambda found: found[0].state != "running",
            seconds=SECONDS,
        )
        assert (one.state, one.starts, one.taken, one.yielded) == ("done", 3, COUNT, COUNT)
        assert one.known == 0
        ledger = await center.ledger(run)
        assert (ledger.accepted, ledger.unaccounted) == (COUNT, 0)
        assert not boxes.children


class Ground:
    """Centers without an agent: what generators put in stays to be counted."""

    def __init__(self, centers: list[CenterProcess], client: CenterClient) -> None:
        self.centers = centers
        self.client = client

    async def run(self, *generators: Any) -> str:
        document = {"name": "j", "generators": list(generators)}
        await self.client.call("PUT", "/api/v1/jobs/j", document, dict, seconds=60.0)
        started = await self.client.call("POST", "/api/v1/jobs/j/run", None, dict)
        run: str = started["run"]
        return run

    async def figures(self, run: str) -> list[dict[str, Any]]:
        answer = await self.client.call("GET", f"/api/v1/runs/{run}/generators", None, dict)
        found: list[dict[str, Any]] = answer["items"]
        return found

    async def until(self, run: str, look: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        found = await until(
            lambda: self.figures(run), lambda found: found and look(found[0]), seconds=SECONDS
        )
        return found[0]

    async def ledger(self, run: str) -> dict[str, Any]:
        view = await self.client.call("GET", f"/api/v1/runs/{run}", None, dict)
        ledger: dict[str, Any] = view["ledger"]
        return ledger

    def boxed(self) -> list[tuple[CenterProcess, psutil.Process]]:
        """Every process below a center, with its center."""
        return [
            (center, child)
            for center in self.centers
            if center.running
            for child in psutil.Process(center.pid).children(recursive=True)
        ]


@asynccontextmanager
async def ground(folder: Path, env: Mapping[str, str], count: int) -> AsyncIterator[Ground]:
    async with running_centers(folder, {**JOBS, **env}, count) as centers:
        urls = [center.url for center in centers]
        token = centers[0].admin_token
        async with CenterClient(urls, token, SystemClock(), Random(5)) as client:
            yield Ground(centers, client)


async def test_a_center_that_is_killed_goes_on_when_it_is_back(tmp_path: Path) -> None:
    """Issue 4: the run is not finished before its generator is through; its process dies
    with the center, and the figures are those of an undisturbed run."""
    async with ground(tmp_path, {}, 1) as world:
        run = await world.run(GENERATOR)
        await world.until(run, lambda one: one["taken"] >= 20_000)
        ((center, child), *_) = world.boxed()
        os.kill(center.pid, signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, [child], 20)
        assert not child.is_running()
        await asyncio.to_thread(center.start)
        one = await world.until(run, lambda one: one["state"] == "done")
        assert (one["starts"], one["yielded"], one["taken"], one["known"]) == (2, COUNT, COUNT, 0)
        assert (await world.ledger(run))["accepted"] == COUNT


@pytest.mark.slow
async def test_another_center_takes_over(tmp_path: Path, shared: dict[str, str]) -> None:
    """C9: when the center that feeds a run dies, another begins its generators again."""
    async with ground(tmp_path, shared, 2) as world:
        run = await world.run({**GENERATOR, "dedup": 3600})
        await world.until(run, lambda one: one["taken"] >= 5_000)
        ((first, _), *_) = world.boxed()
        os.kill(first.pid, signal.SIGKILL)
        one = await world.until(run, lambda one: one["state"] == "done")
        assert (one["starts"], one["yielded"], one["taken"]) == (2, COUNT, COUNT)
        assert (await world.ledger(run))["accepted"] == COUNT


@pytest.mark.slow
async def test_constant_memory(tmp_path: Path) -> None:
    """Issue 4: the memory of center and child does not grow with what is yielded."""
    many = {**GENERATOR, "arguments": {"count": 300_000}}
    printed = {**many, "kind": "shell", "name": "printed", "code": SHELL}
    async with ground(tmp_path, {}, 1) as world:
        center = psutil.Process(world.centers[0].pid)
        for generator in (many, printed):
            run = await world.run(generator)
            await world.until(run, lambda one: one["taken"] >= 30_000)
            early, child = center.memory_info().rss, 0
            async with asyncio.timeout(SECONDS):
                while (one := (await world.figures(run))[0])["state"] == "running":
                    child = max([child, *(_rss(process) for _, process in world.boxed())])
                    await asyncio.sleep(0.05)
            grown = center.memory_info().rss - early
            assert (one["state"], one["taken"]) == ("done", 300_000)
            # 270,000 URIs later; kept in memory they would be more than 30 MB in either.
            assert grown < 24 * 2**20, f"the center grew by {grown / 2**20:.0f} MB"
            assert child < 80 * 2**20, f"a child has {child / 2**20:.0f} MB"


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
