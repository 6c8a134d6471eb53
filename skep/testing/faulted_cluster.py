"""Two centers and two agents on PostgreSQL and Redis, with a fault proxy on every connection.

For tests that apply one fault (kill, freeze, cut) to one part (a center, an agent, a spider,
PostgreSQL, Redis) while work continues. Every connection between two parts uses a `FaultProxy`; the
test itself calls the centers directly. Killed parts are restarted.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

import psutil

from skep.runtime.clock import SystemClock
from skep.testing.faultproxy import FaultProxy
from skep.testing.private import HOST, Server, free_port
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.servers import Postgres, Redis
from skep.wire.client import CenterClient

PARTS = ("center", "agent", "spider", "postgresql", "redis")
ACTS = ("kill", "freeze", "cut")
#: Runs `skep center`, whose spiders use a proxy to reach it.
_CENTER = """
import os
from skep.jobs.runs import spider_process

argv = spider_process.SpiderCommand.argv

def by_way_of_a_proxy(order):
    return [os.environ["SPIDERS_CENTER"] if one == order.center else one for one in argv(order)]

spider_process.SpiderCommand.argv = by_way_of_a_proxy
from skep.cli.main import main

main()
"""


class ProxiedCenter(CenterProcess):
    """Its spiders call it through the proxy whose URL is in its environment."""

    def _command(self, port: int) -> list[str]:
        place = ["--data", str(self.folder), f"--port={port}"]
        return [self._binary, "-c", _CENTER, "center", *place]


class FaultedCluster:
    """Use it with `async with`. `strike` applies one fault to one part, for some seconds."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, down: float) -> None:
        """`down`: seconds before a killed part is restarted."""
        self.folder = folder
        self.postgres = Postgres()
        self.redis = Redis()
        self.centers: list[ProxiedCenter] = []
        self.agents: list[AgentProcess] = []
        self._env = {"SKEP_ARCHIVE_URL": str(folder / "archive"), **env}
        self._down = down
        self._stack = AsyncExitStack()
        #: Proxies by part: ("postgresql", 0) is that of the first center.
        self._lines: dict[tuple[str, int], list[FaultProxy]] = {}
        self._client: CenterClient | None = None

    @property
    def client(self) -> CenterClient:
        assert self._client is not None, "start the cluster first"
        return self._client

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the public API at any center that answers."""
        return await self.client.call(method, path, body, dict)

    # -- start

    async def _start(self) -> None:
        for server in (self.postgres, self.redis):
            self._stack.push_async_callback(asyncio.to_thread, server.close)
            await asyncio.to_thread(server.start)
        store = self.postgres.fresh_database().rpartition("/")[2]
        for number in range(2):
            await self._start_center(number, store)
        for number in range(2):
            await self._start_agent(number)
        urls = [center.url for center in self.centers]
        token = self.centers[0].admin_token
        self._client = CenterClient(urls, token, SystemClock(), Random(1))  # noqa: S311
        self._stack.push_async_callback(self._client.close)

    async def _start_center(self, number: int, store: str) -> None:
        store_line = await self._line(
            self.postgres.port, ("postgresql", number), ("center", number)
        )
        bus_line = await self._line(self.redis.port, ("redis", number), ("center", number))
        port = free_port()
        spiders = await self._line(port, ("spider", number))
        env = {
            **self._env,
            "SKEP_STORE_URL": f"postgresql://postgres@{HOST}:{store_line.port}/{store}",
            "SKEP_BUS_URL": f"redis://{HOST}:{bus_line.port}/0",
            "SPIDERS_CENTER": spiders.url,
        }
        center = ProxiedCenter(self.folder / f"center{number}", env)
        center.port = port
        self.centers.append(center)
        self._stack.push_async_callback(asyncio.to_thread, center.kill)
        await asyncio.to_thread(center.start)

    async def _start_agent(self, number: int) -> None:
        """Each starts with another center."""
        urls = [
            (await self._line(center.port, ("agent", number), ("center", at))).url
            for at, center in enumerate(self.centers)
        ]
        known = urls[number:] + urls[:number]
        token = self.centers[0].agent_token
        agent = AgentProcess(self.folder / f"agent{number}", known, token, self._env)
        self.agents.append(agent)
        self._stack.push_async_callback(asyncio.to_thread, agent.kill)
        await asyncio.to_thread(agent.start)

    async def _line(self, target: int, *parts: tuple[str, int]) -> FaultProxy:
        proxy = FaultProxy(target)
        await self._stack.enter_async_context(proxy)
        for part in parts:
            self._lines.setdefault(part, []).append(proxy)
        return proxy

    # -- faults

    async def strike(self, part: str, act: str, number: int, seconds: float) -> None:
        """Apply `act` to `part`; the fault has ended when this returns. `number` selects the center
        or agent, or the center of the spider."""
        if act == "cut":
            await self._cut(part, number, seconds)
        elif part == "spider":
            await self._strike_spider(act, seconds)
        else:
            await self._strike_server(self._server(part, number), act, seconds)

    def _server(self, part: str, number: int) -> Server:
        servers: dict[str, Server] = {
            "center": self.centers[number],
            "agent": self.agents[number],
            "postgresql": self.postgres,
            "redis": self.redis,
        }
        return servers[part]

    async def _strike_server(self, server: Server, act: str, seconds: float) -> None:
        if act == "kill":
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(self._down)
            await asyncio.to_thread(server.start)
            return
        server.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            server.resume()

    async def _strike_spider(self, act: str, seconds: float) -> None:
        """Its center restarts a killed spider."""
        (spider, *_) = [process for _, process in self.spiders()]
        if act == "kill":
            os.kill(spider.pid, signal.SIGKILL)
            return
        os.kill(spider.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if psutil.pid_exists(spider.pid):  # else its center has ended it
            os.kill(spider.pid, signal.SIGCONT)

    async def _cut(self, part: str, number: int, seconds: float) -> None:
        whole = part in {"postgresql", "redis"}
        lines = [
            line
            for (owner, at), owned in self._lines.items()
            if owner == part and (whole or at == number)
            for line in owned
        ]
        for line in lines:
            line.hold()
        try:
            await asyncio.sleep(seconds)
        finally:
            for line in lines:
                line.heal()

    # -- processes

    def spiders(self) -> list[tuple[int, psutil.Process]]:
        """Every spider, with the number of its center."""
        return [
            (number, found)
            for number, center in enumerate(self.centers)
            if center.running
            for found in _spiders_below(center.pid)
        ]


def _spiders_below(pid: int) -> Iterator[psutil.Process]:
    """The innermost process of each: a sandbox is a process too."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return
    for process in below:
        try:
            words = process.cmdline()
            if "skep.spiders" in words and words[0].endswith("python"):
                yield process
        except psutil.Error:
            continue
