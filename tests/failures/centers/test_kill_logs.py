"""Log lines when centers, agents and spiders are killed: each line once (R4).

What a process wrote is on disk: the file of a spider, the lines that an agent said. The store must
have the same lines, as often as they were written.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from skep.logs.process_output import entry_of_output
from skep.model.logs import LogLine
from skep.runtime.clock import SystemClock
from skep.testing.polling import until
from skep.testing.processes import AgentProcess, CenterProcess, running_centers
from skep.testing.site import DemoSite
from skep.wire.api.monitoring.logs import WhichLines
from skep.wire.client import CenterClient

SECONDS = 90.0
SPIDER = """
import skep


class Talker(skep.Spider):
    name = "talker"
    url: str = ""
    settings = {"block_size": 5, "outstanding_limit": 20}

    def start(self):
        for number in range(60):
            yield f"{self.url}/page/{number}"

    def parse(self, response):
        for part in range(20):
            print(f"{response.url} part {part} password=hunter2", flush=True)
        yield {"url": response.url}
"""
JOBS = {
    "SKEP_JOBS_KEEP_EVERY": "0.1",
    "SKEP_JOBS_LEASE_SECONDS": "2",
    "SKEP_JOBS_RESTART_FIRST": "0.1",
}


class Ground:
    """Centers, an agent, a site, and a job whose spider writes many lines."""

    def __init__(
        self,
        centers: list[CenterProcess],
        agent: AgentProcess,
        client: CenterClient,
        site: DemoSite,
    ) -> None:
        self.centers = centers
        self.agent = agent
        self.client = client
        self.site = site

    async def crawl(self) -> str:
        spider = {"path": "talker.py", "arguments": {"url": self.site.url}}
        await self.client.call("PUT", "/api/v1/jobs/talk", {"spider": spider}, dict)
        started = await self.client.call("POST", "/api/v1/jobs/talk/run", None, dict)
        run: str = started["run"]
        return run

    async def ended(self) -> None:
        async def look() -> dict[str, Any]:
            view = await self.client.call("GET", "/api/v1/jobs/talk", None, dict)
            found: dict[str, Any] = view["runs"][0]
            return found

        row = await until(look, lambda row: not row["open"], seconds=SECONDS, step=0.1)
        assert row["outcome"].startswith("finished: 60 done"), row

    async def lines(self, filter: str) -> list[LogLine]:  # noqa: A002 - as in the API
        found: list[LogLine] = []
        cursor, first = "", True
        while cursor or first:
            page = await self.client.api.logs.search(WhichLines(filter, cursor=cursor, limit=1000))
            found += page.lines
            cursor, first = page.cursor, False
        return found

    def written(self, run: str) -> Counter[str]:
        """What the spider wrote, at all centers."""
        files = [center.folder / "runs" / f"{run}.log" for center in self.centers]
        lines = [line for file in files if file.exists() for line in file.read_bytes().split(b"\n")]
        return Counter(entry_of_output(line, 0.0).text for line in lines if line.strip())

    async def check(self, run: str) -> None:
        """The store has every line of the files, as often as it was written."""
        expected = self.written(run)
        assert sum(expected.values()) >= 60 * 20

        async def stored() -> Counter[str]:
            return Counter(line.text for line in await self.lines(f"run:{run} source:spider"))

        assert await until(stored, lambda found: found.total() >= expected.total()) == expected
        lines = await self.lines(f"run:{run}")
        named = {(line.source, line.token, line.offset) for line in lines}
        assert len(named) == len(lines)
        assert not any("hunter2" in line.text for line in lines)

    def spiders(self) -> list[tuple[CenterProcess, int]]:
        return [
            (center, child.pid)
            for center in self.centers
            if center.running
            for child in psutil.Process(center.pid).children()
            if _is_spider(child)
        ]

    async def until_hits(self, count: int) -> None:
        await until(lambda: sum(self.site.hits.values()) >= count, seconds=SECONDS, step=0.03)


def _is_spider(process: psutil.Process) -> bool:
    try:
        return "skep.spiders" in process.cmdline()
    except psutil.Error:
        return False


@asynccontextmanager
async def ground(folder: Path, env: Mapping[str, str], count: int) -> AsyncIterator[Ground]:
    spiders = folder / "spiders"
    spiders.mkdir()
    (spiders / "talker.py").write_text(SPIDER)
    settings = {**JOBS, "SKEP_JOBS_FOLDER": str(spiders), **env}
    async with running_centers(folder, settings, count) as centers:
        urls = [center.url for center in centers]
        with ExitStack() as stack:
            agent = AgentProcess(folder / "agent", urls, centers[0].agent_token)
            await asyncio.to_thread(stack.enter_context, agent)
            async with (
                DemoSite(pages=100, latency=0.05) as site,
                CenterClient(urls, centers[0].admin_token, SystemClock(), Random(5)) as client,
            ):
                yield Ground(centers, agent, client, site)


@pytest.mark.slow
async def test_a_center_that_is_killed_stores_the_lines_of_its_spider_once(tmp_path: Path) -> None:
    """R4, log x kill -9 of the center: the spider ends with it, and both come back."""
    async with ground(tmp_path, {}, 1) as world:
        run = await world.crawl()
        await world.until_hits(20)
        await asyncio.to_thread(world.centers[0].kill)
        await asyncio.to_thread(world.centers[0].start)
        await world.ended()
        await world.check(run)


async def test_a_spider_that_is_killed_loses_no_line(tmp_path: Path) -> None:
    """R4, log x kill -9 of the spider."""
    async with ground(tmp_path, {}, 1) as world:
        run = await world.crawl()
        await world.until_hits(20)
        ((_, child),) = world.spiders()
        os.kill(child, signal.SIGKILL)
        await world.ended()
        await world.check(run)


@pytest.mark.slow
async def test_another_center_takes_the_run_and_both_logs_are_whole(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """R4, log x two centers: the lease is the token, and what the first center had not sent when
    it was killed is stored once it is back."""
    async with ground(tmp_path, shared, 2) as world:
        run = await world.crawl()
        await world.until_hits(20)
        ((center, _),) = world.spiders()
        await asyncio.to_thread(center.kill)
        await world.ended()
        await asyncio.to_thread(center.start)
        await world.check(run)


async def test_an_agent_keeps_its_lines_while_no_center_answers(tmp_path: Path) -> None:
    """R4, log x kill -9 of center and agent: lines wait on the agent's disk and arrive once."""
    async with ground(tmp_path, {}, 1) as world:
        agents = "source:agent registered"
        await until(lambda: world.lines(agents), bool, seconds=SECONDS)
        await asyncio.to_thread(world.centers[0].kill)
        spool = world.agent.folder / "agent" / "logs"
        failed = b"heartbeat failed"
        await until(lambda: _holds(spool, failed), seconds=SECONDS)
        await asyncio.to_thread(world.agent.kill)
        await asyncio.to_thread(world.centers[0].start)
        await asyncio.to_thread(world.agent.start)
        waited = await until(
            lambda: world.lines('source:agent "heartbeat failed"'), bool, seconds=SECONDS
        )
        lines = await world.lines("source:agent")
        assert len({(line.token, line.offset) for line in lines}) == len(lines)
        assert len({line.token for line in lines}) == 2
        assert waited


def _holds(folder: Path, text: bytes) -> bool:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name.isdigit()]
    return any(text in path.read_bytes() for path in files)
