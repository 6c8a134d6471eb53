"""Centers that freeze while they supervise spiders of jobs, and thaw after a take-over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
from redis import asyncio as aioredis

from skep.jobs.sink_writer import BATCH
from skep.testing import servers
from tests.failures.test_kill_job_center import PAGES, Ground, ground, is_spider


def spider_of(world: Ground, center_pid: int) -> int:
    """The process number of the spider beside that center; 0 when there is none."""
    children = psutil.Process(center_pid).children()
    return next((child.pid for child in children if is_spider(child)), 0)


async def until_spider_beside(world: Ground, center_pid: int) -> None:
    async with asyncio.timeout(60):
        while not spider_of(world, center_pid):  # noqa: ASYNC110 - processes have no event
            await asyncio.sleep(0.05)


async def in_list(url: str) -> list[str]:
    client = aioredis.Redis.from_url(url)
    try:
        return [json.loads(line)["url"] for line in await client.lrange("items", 0, -1)]
    finally:
        await client.aclose()


async def test_a_thawed_center_leaves_the_run_to_its_new_holder(
    tmp_path: Path, shared: dict[str, str], redis_server: servers.Redis
) -> None:
    """E2, E5: the thawed center revokes only the token that it issued; the run goes on beside
    the other center and ends as finished, every page and item once. The Redis list that is its
    sink has every item, and at most one batch twice."""
    sink = f"{redis_server.fresh_database()}?list=items"
    async with ground(tmp_path, shared, 2) as world:
        world.site.latency = 0.3
        run = await world.crawl(sinks=[sink])
        await world.until_hits(20)
        async with asyncio.timeout(60):
            while not await in_list(sink.partition("?")[0]):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        ((frozen, _),) = world.spiders()
        (other,) = [center for center in world.centers if center is not frozen]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await until_spider_beside(world, other.pid)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        async with asyncio.timeout(60):
            while spider_of(world, frozen.pid):  # noqa: ASYNC110 - processes have no event
                await asyncio.sleep(0.05)
        world.site.latency = 0.0
        await world.check(run, starts=2)
        found = await in_list(sink.partition("?")[0])
        assert len(set(found)) == PAGES
        assert len(found) - PAGES <= BATCH
        assert len(found) <= PAGES + 60, "a thawed center repeats what it had read, not the run"
        said = [line for center in world.centers for line in center.said()]
        assert not [line for line in said if "the token was revoked" in line]
