"""Centers that die while they run spiders of jobs; kill -9, real processes, real databases."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil

from skep.runtime.clock import SystemClock
from skep.testing.polling import until
from skep.testing.processes import AgentProcess, CenterProcess, running_centers
from skep.testing.site import DemoSite
from skep.wire.client import CenterClient

EXAMPLES = Path(__file__).parents[3] / "examples"
JOBS = {
    "SKEP_JOBS_FOLDER": str(EXAMPLES),
    "SKEP_JOBS_KEEP_EVERY": "0.1",
    "SKEP_JOBS_LEASE_SECONDS": "2",
    "SKEP_JOBS_RESTART_FIRST": "0.1",
}
PAGES = 300
SECONDS = 90.0


def is_spider(process: psutil.Process) -> bool:
    """One that has just ended is none any more."""
    try:
        return "skep.spiders" in process.cmdline()
    except psutil.Error:
        return False


class Ground:
    """Centers, an agent and a site; one job that crawls the site."""

    def __init__(self, centers: list[CenterProcess], client: CenterClient, site: DemoSite) -> None:
        self.centers = centers
        self.client = client
        self.site = site

    async def crawl(self, **more: Any) -> str:
        """Keep the job and start its run."""
        arguments = {"start_urls": f"{self.site.url}/"}
        spider = {"path": "demo_pages.py", "arguments": arguments}
        await self.client.call("PUT", "/api/v1/jobs/crawl", {"spider": spider, **more}, dict)
        started = await self.client.call("POST", "/api/v1/jobs/crawl/run", None, dict)
        run: str = started["run"]
        return run

    async def job_run(self) -> dict[str, Any]:
        view = await self.client.call("GET", "/api/v1/jobs/crawl", None, dict)
        found: dict[str, Any] = view["runs"][0]
        return found

    def spiders(self) -> list[tuple[CenterProcess, int]]:
        """Every spider's process, with its center."""
        return [
            (center, child.pid)
            for center in self.centers
            if center.running
            for child in psutil.Process(center.pid).children()
            if is_spider(child)
        ]

    async def until(self, look: Callable[[], Any]) -> Any:

        def found() -> Any:
            assert len(self.spiders()) <= 1, "two centers run one spider"
            return look()

        return await until(found, seconds=SECONDS, step=0.03)

    async def until_hits(self, count: int) -> None:
        await self.until(lambda: sum(self.site.hits.values()) >= count)

    async def ended(self) -> dict[str, Any]:
        return await until(self.job_run, lambda row: not row["open"], seconds=SECONDS, step=0.1)

    async def check(self, run: str, starts: int) -> None:
        """Every page once, every item once."""
        row = await self.ended()
        assert row["outcome"] == f"finished: {PAGES + 1} done, 0 dead, 0 cancelled"
        assert row["starts"] == starts, row["log"]
        path = f"/api/v1/runs/{run}/items?limit=10000"
        items = (await self.client.call("GET", path, None, dict))["items"]
        assert len({item["data"]["url"] for item in items}) == len(items) == PAGES


@asynccontextmanager
async def ground(folder: Path, env: Mapping[str, str], count: int) -> AsyncIterator[Ground]:
    async with running_centers(folder, {**JOBS, **env}, count) as centers:
        urls = [center.url for center in centers]
        rng = Random(5)
        with ExitStack() as stack:
            agent = AgentProcess(folder / "agent", urls, centers[0].agent_token)
            await asyncio.to_thread(stack.enter_context, agent)
            async with (
                DemoSite(pages=PAGES, latency=0.05) as site,
                CenterClient(urls, centers[0].admin_token, SystemClock(), rng) as client,
            ):
                yield Ground(centers, client, site)


async def test_a_spider_ends_with_its_center_and_comes_back_with_it(tmp_path: Path) -> None:
    """Children die with the center, and the run goes on by itself when it is back."""
    async with ground(tmp_path, {}, 1) as world:
        run = await world.crawl()
        await world.until_hits(30)
        ((center, child),) = world.spiders()
        os.kill(center.pid, signal.SIGKILL)
        await world.until(lambda: not psutil.pid_exists(child))
        await asyncio.to_thread(center.start)
        await world.until(world.spiders)
        world.site.latency = 0.0
        await world.check(run, starts=2)


async def test_in_order_too(tmp_path: Path) -> None:
    """SIGTERM of the center does not pause the run: it goes on after the restart."""
    async with ground(tmp_path, {}, 1) as world:
        run = await world.crawl()
        await world.until_hits(30)
        ((center, child),) = world.spiders()
        assert await asyncio.to_thread(center.terminate) == 0
        assert not psutil.pid_exists(child)
        await asyncio.to_thread(center.start)
        await world.until(world.spiders)
        world.site.latency = 0.0
        await world.check(run, starts=2)


async def test_another_center_takes_the_spider_over(tmp_path: Path, shared: dict[str, str]) -> None:
    """C9: over several centers one runs a given spider; when it dies, another does."""
    async with ground(tmp_path, shared, 2) as world:
        run = await world.crawl()
        await world.until_hits(30)
        ((first, child),) = world.spiders()
        os.kill(first.pid, signal.SIGKILL)
        await world.until(lambda: not psutil.pid_exists(child))
        await world.until(world.spiders)
        ((second, _),) = world.spiders()
        assert second is not first
        world.site.latency = 0.0
        await world.check(run, starts=2)
