"""Set-ups for tests of the spider's loop: the demo site without a server, and a spider for it.

Runs in test processes only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from skep.spiders.authoring.response import Response
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.stats import Ending
from skep.testing.polling import until
from skep.testing.site_pages import Pages
from skep.testing.spider_double import MemoryQueue

ROOT = "http://demo.test"
COUNT = 120
PAGES = Pages(COUNT)


def demo(url: str) -> str | None:
    """A page of the demo site, without a server."""
    number = url.removeprefix(f"{ROOT}/page/")
    return PAGES.page(int(number)) if number.isdigit() and int(number) < COUNT else None


class Walker(Spider):
    """Follows every link."""

    start_urls: Sequence[str] = (f"{ROOT}/page/0",)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()


async def drive(spider: Spider, queue: MemoryQueue) -> Ending:
    """Run a spider to its end with a double, within the time limit of a test."""
    async with asyncio.timeout(20):
        return await SpiderEngine(spider, queue, queue.clock).run()


async def has_accepted(queue: MemoryQueue) -> None:
    """Returns when the double has its first request."""
    await until(lambda: queue.accepted, step=0.01)


def urls(queue: MemoryQueue) -> list[str]:
    """Every requested URL, in order."""
    return [request.uri for request in queue.accepted]
