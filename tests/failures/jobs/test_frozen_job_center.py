"""Centers that freeze while they supervise spiders of jobs, and thaw after a take-over."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
from redis import asyncio as aioredis

from skep.jobs.runs.delivery_writer import BATCH
from skep.testing import servers
from skep.testing.polling import until
from tests.failures.jobs.test_kill_job_center import PAGES, Ground, ground, is_spider


def spider_of(world: Ground, center_pid: int) -> int:
    """The process number of the spider beside that center; 0 when there is none."""
    children = psutil.Process(center_pid).children()
    return next((child.pid for child in children if is_spider(child)), 0)


async def until_spider_beside(world: Ground, center_pid: int) -> None:
    await until(lambda: spider_of(world, center_pid), seconds=60)


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
        await until(lambda: in_list(sink.partition("?")[0]), seconds=60)
        ((frozen, _),) = world.spiders()
        (other,) = [center for center in world.centers if center is not frozen]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await until_spider_beside(world, other.pid)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        await until(lambda: not spider_of(world, frozen.pid), seconds=60)
        world.site.latency = 0.0
        await world.check(run, starts=2)
        found = await in_list(sink.partition("?")[0])
        assert len(set(found)) == PAGES
        assert len(found) - PAGES <= BATCH
        assert len(found) <= PAGES + 60, "a thawed center repeats what it had read, not the run"
        said = [line for center in world.centers for line in center.said()]
        assert not [line for line in said if "the token was revoked" in line]
