"""Set-ups for tests of jobs and spiders: an agent at a center, runs, endless code.

Real centers, real agents, in the event loop of the test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from skep.embed.embedded import LocalAgent
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import RunningCenter
from skep.testing.polling import until

SECONDS = 60.0
#: Requests fifty pages of `url` without end.
ENDLESS_SPIDER = """
import skep


class Endless(skep.Spider):
    name = "endless"
    url: str = ""
    settings = {"block_size": 5, "outstanding_limit": 20}

    def start(self):
        number = 0
        while True:
            number += 1
            yield skep.Request(f"{self.url}/page/{number % 50}", again=True)

    def parse(self, response):
        yield {"url": response.url}
"""
#: Yields URLs without a listener.
ENDLESS_GENERATOR = """
import time


def generate():
    number = 0
    while True:
        yield f"http://127.0.0.1:9/{number}"
        number += 1
        time.sleep(0.01)
"""


@asynccontextmanager
async def local_agent(center: RunningCenter) -> AsyncIterator[LocalAgent]:
    """An agent of the center until the block ends."""
    agent = LocalAgent(center.local, SystemClock(), Random(3))  # noqa: S311 (a test repeats)
    await agent.start()
    try:
        yield agent
    finally:
        await agent.stop()


async def until_found(look: Callable[[], Awaitable[Any]]) -> Any:
    """The first true result of `look`."""
    return await until(look, seconds=SECONDS)


async def fired(center: RunningCenter, job: str, key: str = "") -> str:
    """The run that was started, once per key."""
    headers = {"Idempotency-Key": key} if key else {}
    answer = await center.admin.send("POST", f"/api/v1/jobs/{job}/run", headers=headers)
    run: str = answer.json()["run"]
    return run
