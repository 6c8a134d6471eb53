"""Spiders over a real center with a real agent, and what the line between them may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import skep
from skep.errors import StaleToken, Unavailable
from skep.runtime.clock import SystemClock
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.spiders.driving.stats import Ending
from skep.spiders.load import load_spider
from skep.spiders.ports import Turn
from skep.testing.clock import ManualClock
from skep.testing.faultproxy import TO_CALLER, FaultProxy
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import local_agent
from skep.testing.grounds.spiders import Walker
from skep.testing.site import DemoSite
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi
from skep.wire.client.http import HttpTransport

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
async def site() -> AsyncIterator[DemoSite]:
    async with DemoSite(pages=60) as running:
        yield running


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    flags = {"egress_allow": ["127.0.0.0/8"]}
    async with running_center(tmp_path / "data", **flags) as running, local_agent(running):
        yield running


class ItemsAnswer(msgspec.Struct):
    """What tests read of the items of a run."""

    items: list[dict[str, Any]]


async def crawl(center: RunningCenter, spider: skep.Spider, run: str) -> Ending:
    clock, rng = SystemClock(), Random(4)
    async with CenterClient([center.url], center.admin.token, clock, rng) as client:
        queue = HttpQueue(CenterApi(client.transport), run, clock, rng)
        async with asyncio.timeout(60):
            return await SpiderEngine(spider, queue, clock).run()


async def items_of(center: RunningCenter, run: str) -> list[dict[str, Any]]:
    answer = await center.admin.get(f"/api/v1/runs/{run}/items?limit=10000")
    return [item["data"] for item in answer.read(ItemsAnswer).items]


@pytest.mark.parametrize("example", ["demo_pages", "demo_rules"])
async def test_the_examples_take_every_page_once(
    example: str, site: DemoSite, center: RunningCenter
) -> None:
    """R1: start, parse, items, follow-ups; the ledger adds up; each page is one item."""
    spider = load_spider(str(EXAMPLES / f"{example}.py"))(start_urls=f"{site.url}/")
    ending = await crawl(center, spider, "web")
    assert (ending.reason, ending.good) == ("finished", True), ending.sentence
    found = await items_of(center, "web")
    assert sorted(item["title"] for item in found) == sorted(f"Page {n}" for n in range(60))
    assert (ending.stats.items, ending.stats.pages, ending.stats.statuses) == (60, 61, {200: 61})
    ledger = await center.ledger("web")
    assert (ledger.accepted, ledger.done, ledger.open) == (61, 61, 0)
    assert all(count == 1 for path, count in site.hits.items() if path.startswith("/page/"))


async def test_the_example_of_a_sitemap(site: DemoSite, center: RunningCenter) -> None:
    """R1: robots.txt names the sitemap, which names the pages."""
    kind = load_spider(str(EXAMPLES / "demo_sitemap.py"))
    ending = await crawl(center, kind(sitemap_urls=f"{site.url}/robots.txt"), "map")
    assert ending.reason == "finished"
    titles = {item["title"] for item in await items_of(center, "map")}
    assert titles == {f"Page {number}" for number in range(10, 20)}


class Fails(skep.Spider):
    seen: Any = None

    def parse(self, response: skep.Response) -> None:
        raise AssertionError(f"{response.url} worked")

    def failed(self, failure: skep.Failure) -> Iterator[Any]:
        yield {"kind": failure.kind, "status": failure.status}


async def test_a_failed_request_comes_back_to_its_errback(
    site: DemoSite, center: RunningCenter
) -> None:
    """R5: a request that was tried in vain is reported."""
    ending = await crawl(center, Fails(start_urls=f"{site.url}/status/404"), "fails")
    assert (ending.reason, ending.stats.failed) == ("finished", 1)
    assert await items_of(center, "fails") == [{"kind": "status", "status": 404}]


async def test_a_second_driver_fences_out_the_first(site: DemoSite, center: RunningCenter) -> None:
    """R5: a spider that was believed dead can do no harm."""
    clock, rng = SystemClock(), Random(5)
    async with CenterClient([center.url], center.admin.token, clock, rng) as client:
        first, second = (
            HttpQueue(CenterApi(client.transport), "one", clock, rng, tries=2) for _ in range(2)
        )
        spider = Walker(start_urls=f"{site.url}/page/0")
        await first.open("one", spider.run_settings)
        await second.open("one", spider.run_settings)
        with pytest.raises(StaleToken):
            await first.checkpoint(Turn(0))
        async with asyncio.timeout(60):
            ending = await SpiderEngine(spider, second, clock).run()
        assert ending.reason == "finished"
        assert (await second.ledger()).done == 60


async def test_without_a_center_the_run_ends_with_that_reason() -> None:
    """R5, fault 1: n tries with back-off, then a clear end."""
    clock = SystemClock()
    async with CenterClient(["http://127.0.0.1:9"], "", clock, Random(1)) as client:
        queue = HttpQueue(CenterApi(client.transport), "nobody", clock, Random(1), tries=3)
        ending = await SpiderEngine(Walker(), queue, clock).run()
    assert (ending.reason, ending.good) == ("center unreachable", False)
    assert "tried 3 times" in ending.sentence


class Often(Walker):
    """Asks for its first page three times more, and then the answers are lost."""

    proxy: FaultProxy

    def parse(self, response: skep.Response) -> Iterator[Any]:
        yield from super().parse(response)
        if response.depth == 0:
            yield from (response.request.replace(again=True) for _ in range(3))
            self.proxy.cut(TO_CALLER, when=b"/turn HTTP", times=2)


async def test_lost_answers_and_broken_lines_count_nothing_twice(
    site: DemoSite, center: RunningCenter
) -> None:
    """R5: the center took the turn, its answer was lost, and it is told again."""
    clock, rng = SystemClock(), Random(6)
    async with (
        FaultProxy(int(center.url.rpartition(":")[2])) as proxy,
        CenterClient([proxy.url], center.admin.token, clock, rng) as client,
    ):
        proxy.cut(TO_CALLER, when=b"/turn HTTP")
        proxy.cut(TO_CALLER, after=2000, when=b"/read HTTP", times=3)
        queue = HttpQueue(CenterApi(client.transport), "torn", clock, rng)
        spider = Often(start_urls=f"{site.url}/page/0")
        spider.proxy = proxy
        engine = SpiderEngine(spider, queue, clock)
        async with asyncio.timeout(60):
            ending = await engine.run()
    assert ending.reason == "finished", ending.sentence
    ledger = await center.ledger("torn")
    assert (ledger.accepted, ledger.done) == (63, 63)
    assert len(await items_of(center, "torn")) == 63
    assert site.hits["/page/0"] == 4


async def test_the_queue_over_http_tries_again_what_may_work_later(clock: ManualClock) -> None:
    """R5, fault 1: capped back-off with jitter, then a clear end."""
    tries = 0

    class Refusing(HttpTransport):
        async def send(self, *_: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries < 4:
                raise Unavailable("the store does not answer")

    client = CenterClient(["http://127.0.0.1:9"], "", clock, Random(1))
    client.transport = Refusing(["http://127.0.0.1:9"], "")
    queue = HttpQueue(CenterApi(client.transport), "web", clock, Random(1), tries=5)
    task = asyncio.create_task(queue.move("pause"))
    await clock.pass_time(30)
    await asyncio.wait_for(task, 1)
    assert tries == 4
