"""What the demos play on: a center in this process, a site and agents as its children.

Nothing here outlives the process, not even when it is killed: the kernel ends the children
and a temporary folder is all that may remain.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from skep.embed.embedded import LocalCenter, with_loopback
from skep.errors import SkepError
from skep.runtime.child_processes import death_signal
from skep.runtime.clock import Clock
from skep.settings import load

if TYPE_CHECKING:
    from skep.model.request import Offered
    from skep.model.run import AskedSettings
    from skep.wire.client import CenterClient

#: The run that a demo crawls in, and the seconds after which it is given up as hung.
DEMO_RUN, LONGEST = "demo", 600.0
END_SECONDS = 5.0
BATCH = 5000


class DemoCenter:
    """`async with` it. Everything that was started ends in reverse."""

    def __init__(self, data: Path | None, clock: Clock, rng: Random) -> None:
        self._data = data
        self._clock = clock
        self._rng = rng
        self._stack = AsyncExitStack()
        self.center: LocalCenter
        self.client: CenterClient

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _open(self) -> None:
        from skep.wire.client import CenterClient

        folder = self._data or Path(self._stack.enter_context(TemporaryDirectory(prefix="skep-")))
        settings = with_loopback(load(None, os.environ, {"center.port": 0, "data": str(folder)}))
        self.center = LocalCenter(settings, self._clock, self._rng)
        await self.center.start()
        self._stack.push_async_callback(self.center.stop)
        client = CenterClient([self.center.url], self.center.admin_token, self._clock, self._rng)
        self.client = await self._stack.enter_async_context(client)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start_agent(self) -> None:
        """An agent in this process."""
        from skep.embed.embedded import LocalAgent

        agent = LocalAgent(self.center, self._clock, self._rng)
        self._stack.push_async_callback(agent.stop)
        await agent.start()

    async def start_site(self, pages: int, latency: float) -> str:
        """The bundled site; returns its address."""
        arguments = ["--pages", str(pages), "--latency", str(latency)]
        # A process of its own: the demo should measure Skep, not the site.
        site = await self._spawn("skep.testing.site", *arguments, stdout=PIPE)
        if site.stdout is None:
            raise SkepError("the demo site has no output")
        url = (await site.stdout.readline()).decode().strip()
        if not url:
            raise SkepError("the demo site did not start; its message stands above")
        return url

    async def start_agent_process(self, name: str) -> Process:
        """An agent as it would run on another machine."""
        folder = self.center.folder / name
        token = self.center.folder / "agent.token"
        found = ["--center", self.center.url, "--token-file", str(token), "--data", str(folder)]
        with (self.center.folder / f"{name}.log").open("ab") as log:
            return await self._spawn("skep", "agent", *found, "--name", name, stderr=log)

    async def _spawn(self, module: str, *arguments: str, **pipes: Any) -> Process:
        environment = {"SKEP_EGRESS_NAMED": "true", **os.environ}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            env=environment,
            preexec_fn=death_signal(os.getpid()),
            **pipes,
        )
        self._stack.push_async_callback(_end, child)
        return child

    async def submit(self, run: str, urls: list[str], settings: AskedSettings) -> int:
        """Open a run and add pages over HTTP; return the number of new requests."""
        from skep.wire.api.runs import OpenRun

        await self.client.api.runs.open(run, OpenRun(settings=settings))
        new = 0
        for start in range(0, len(urls), BATCH):
            batch: list[Offered] = [*urls[start : start + BATCH]]
            new += (await self.client.api.queue.submit(run, batch)).new
        return new

    async def hits(self, site: str) -> dict[str, int]:
        """How often each page of the bundled site was asked for, by its own count."""
        from skep.wire.client.http import HttpTransport
        from skep.wire.client.transport import Request

        transport = HttpTransport([site], "")
        try:
            return await transport.send(
                Request("GET", "/hits"), lambda answer: answer.decoded(dict[str, int])
            )
        finally:
            await transport.close()


async def _end(child: Process) -> None:
    if child.returncode is not None:
        return
    child.terminate()
    try:
        await asyncio.wait_for(child.wait(), END_SECONDS)
    except TimeoutError:
        child.kill()
        await child.wait()
