"""The loop of a spider over a double: callbacks, rules, limits, errors, large pages.

The double (`skep.testing.spider_double`) keeps the contract of `RunQueue` and lets a test
hold downloads back, break the line and take the run over.
"""

# Spiders stand here as people write them: lists in classes, callbacks that ignore their page.
# ruff: noqa: ARG002, ARG005, RUF012

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random
from typing import Any

import pytest

import skep
from skep.model.ledger import Ledger
from skep.spiders.ports import Reading
from skep.testing.grounds.spiders import PAGES, ROOT, Walker, demo, drive, urls
from skep.testing.spider_double import FakePage, MemoryQueue, run_spider, try_spider


async def test_every_link_is_followed_once_and_each_page_is_one_item() -> None:
    queue = MemoryQueue(demo)
    ending = await drive(Walker(), queue)
    assert ending.reason == "finished"
    assert len(queue.items) == len(set(urls(queue))) == 120
    assert queue.moves == ["finish"]
    assert (ending.stats.requests, ending.stats.items, ending.stats.open) == (120, 120, 0)
    # 21 links on each page, nearly all of them known: the process drops them itself.
    sent = sum(len(turn.requests) for turn in queue.turns)
    assert sent == 120
    assert ending.stats.known > 2000


async def test_rules_choose_callbacks_and_follow() -> None:
    class Ruled(skep.Spider):
        start_urls = (f"{ROOT}/page/0",)
        rules = (
            skep.Rule(skep.Links(allow=r"/page/\d$"), follow=True),
            skep.Rule(skep.Links(allow=r"/page/1\d$"), callback="item"),
        )

        def item(self, response: skep.Response) -> dict[str, str]:
            return {"title": response.title}

    tried = await try_spider(Ruled(), demo)
    assert sorted(item["title"] for item in tried.items) == [f"Page {n}" for n in range(10, 20)]
    assert len(tried.urls) == 20


async def test_feeds_start_a_spider_and_say_what_they_knew() -> None:
    class Feed(skep.Spider):
        feed_urls = ("http://a.test/feed",)

        def parse(self, response: skep.Response) -> dict[str, Any]:
            return {"title": response.title, "said": response.meta["entry"]["title"]}

    rss = "<rss><channel><item><title>T</title><link>/1</link></item></channel></rss>"
    pages = {"http://a.test/feed": rss, "http://a.test/1": "<title>One</title>"}
    assert (await try_spider(Feed(), pages)).items == [{"title": "One", "said": "T"}]


async def test_callbacks_of_every_kind() -> None:
    """R1: plain functions, generators, async functions and async generators."""

    class Kinds(skep.Spider):
        async def start(self) -> AsyncIterator[Any]:
            for name in ("plain", "generator", "coroutine", "async_generator", "nothing", "nested"):
                await asyncio.sleep(0)
                yield skep.Request(f"http://a.test/{name}", name, kwargs={"n": 7})
            yield "http://a.test/text"

        def plain(self, response: skep.Response, n: int) -> list[Any]:
            return [{"plain": n}, None]

        def generator(self, response: skep.Response, n: int) -> Iterator[Any]:
            yield {"generator": n}

        async def coroutine(self, response: skep.Response, n: int) -> dict[str, int]:
            await asyncio.sleep(0)
            return {"coroutine": n}

        async def async_generator(self, response: skep.Response, n: int) -> AsyncIterator[Any]:
            yield {"async_generator": n}

        def nothing(self, response: skep.Response, n: int) -> None: ...

        def nested(self, response: skep.Response, n: int) -> Iterator[Any]:
            yield [{"nested": n}, [{"nested": n + 1}]]

        def parse(self, response: skep.Response) -> dict[str, str]:
            return {"text": response.text}

    tried = await try_spider(Kinds(), lambda url: "x")
    assert tried.ending.reason == "finished"
    assert tried.items == [
        {"plain": 7},
        {"generator": 7},
        {"coroutine": 7},
        {"async_generator": 7},
        {"nested": 7},
        {"nested": 8},
        {"text": "x"},
    ]


async def test_an_error_costs_its_page_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All or nothing per page: what it had yielded before is not kept."""

    class Trips(Walker):
        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from super().parse(response)
            if response.url.endswith("7"):
                raise ValueError("seven")

    queue = MemoryQueue(demo)
    with caplog.at_level(logging.ERROR):
        ending = await drive(Trips(), queue)
    broken = [url for url in urls(queue) if url.endswith("7")]
    assert ending.reason == "finished"
    assert ending.stats.callback_errors == len(broken) > 0
    assert len(queue.items) == len(urls(queue)) - len(broken)
    assert "seven" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        skep.Request(f"{ROOT}/page/1", "no_such_method"),
        skep.Request(f"{ROOT}/page/1", meta={"x": object()}),
        {"x": object()},
    ],
)
async def test_what_a_callback_may_not_give_is_its_error(wrong: object) -> None:
    class Wrong(skep.Spider):
        start_urls = (f"{ROOT}/page/0",)

        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield wrong

    tried = await try_spider(Wrong(), demo)
    assert (tried.ending.stats.callback_errors, tried.items) == (1, [])


async def test_links_that_are_no_urls_do_not_cost_the_page() -> None:
    body = '<a href="http://bad host/">x</a><a href="http://exa$mple/">y</a><a href="/ok">z</a>'
    tried = await try_spider(
        Walker(start_urls="http://a.test/"), {"http://a.test/": body, "http://a.test/ok": "<p>"}
    )
    assert tried.urls == ["http://a.test/", "http://a.test/ok"]
    assert tried.ending.stats.not_urls == 2


@pytest.mark.parametrize(
    ("settings", "reason", "items"),
    [({"item_limit": 37}, "item limit", 37), ({"page_limit": 41}, "page limit", 41)],
)
async def test_limits_are_exact(settings: dict[str, Any], reason: str, items: int) -> None:
    kind = type("Limited", (Walker,), {"settings": settings})
    queue = MemoryQueue(demo)
    ending = await drive(kind(), queue)
    assert (ending.reason, ending.good, len(queue.items)) == (reason, True, items)
    assert queue.moves == ["finish"]


async def test_depth_and_hosts_are_limited() -> None:
    class Near(Walker):
        settings = {"depth_limit": 1}
        allowed_domains = ("demo.test",)

        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from super().parse(response)
            yield skep.Request("http://elsewhere.test/")

    queue = MemoryQueue(demo)
    ending = await drive(Near(), queue)
    assert len(urls(queue)) == 1 + len(set(PAGES.links(0)) - {0})
    assert ending.stats.too_deep > 0
    assert ending.stats.elsewhere == 1


async def test_a_start_that_waits_holds_up_nothing() -> None:
    gate = asyncio.Event()

    class Waits(skep.Spider):
        async def start(self) -> AsyncIterator[Any]:
            yield f"{ROOT}/page/0"
            await gate.wait()
            yield f"{ROOT}/page/1"

        def parse(self, response: skep.Response) -> None:
            gate.set()

    tried = await try_spider(Waits(), demo)
    assert tried.urls == [f"{ROOT}/page/0", f"{ROOT}/page/1"]


async def test_large_pages_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.spiders.driving.engine.READ_BYTES", 100_000)
    limits: list[int] = []

    class Measured(MemoryQueue):
        async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
            limits.append(limit)
            return await super().read(limit, wait, taken)

    noise = Random(1).randbytes(30_000)
    starts = ",".join(f"http://a.test/{n}" for n in range(40))
    queue = Measured(lambda url: FakePage(noise), block_size=1)
    spider = Walker(start_urls=starts)
    assert (await drive(spider, queue)).reason == "finished"
    assert (limits[0], max(limits), len(queue.items)) == (1, 3, 40)


async def test_a_flood_of_one_page_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.spiders.driving.checkpoints.CHECKPOINT_REQUESTS", 100)

    class Flood(skep.Spider):
        start_urls = ("http://a.test/",)

        def parse(self, response: skep.Response) -> Iterator[Any]:
            if response.depth == 0:
                yield from (skep.Request(f"http://a.test/{n}") for n in range(1000))
            yield {"url": response.url}

    queue = MemoryQueue(lambda url: "x", block_size=500)
    ending = await drive(Flood(), queue)
    assert (ending.reason, len(queue.items)) == ("finished", 1001)
    assert max(len(turn.requests) for turn in queue.turns) <= 200


async def test_a_page_that_gives_too_much_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn must always fit into one call."""
    monkeypatch.setattr("skep.spiders.driving.harvest.PAGE_BYTES", 10_000)

    class Much(skep.Spider):
        start_urls = ("http://a.test/",)

        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from ({"n": n, "text": "x" * 100} for n in range(100))

    tried = await try_spider(Much(), lambda url: "x")
    assert (tried.items, tried.ending.stats.callback_errors) == ([], 1)


async def test_requests_carry_their_own_errback_and_the_failed_page() -> None:
    class Careful(skep.Spider):
        def start(self) -> Iterator[Any]:
            yield skep.Request("http://a.test/gone", errback="missed", meta={"n": 1})
            yield skep.Request("http://a.test/down", errback=self.missed)

        def missed(self, failure: skep.Failure) -> Iterator[Any]:
            title = failure.response.title if failure.response else None
            yield {"kind": failure.kind, "title": title, "meta": failure.request.meta}

    site = {
        "http://a.test/gone": FakePage("<title>Gone</title>", 410, failure="status"),
        "http://a.test/down": FakePage(status=0, failure="network"),
    }
    tried = await try_spider(Careful(), site)
    assert tried.items == [
        {"kind": "status", "title": "Gone", "meta": {"n": 1}},
        {"kind": "network", "title": None, "meta": {}},
    ]
    assert tried.ending.stats.failures == {"status": 1, "network": 1}


def test_a_spider_is_tried_without_an_event_loop() -> None:
    tried = run_spider(Walker(), {f"{ROOT}/page/0": "<title>Only</title>"})
    assert tried.items == [{"url": f"{ROOT}/page/0", "title": "Only"}]


def test_the_ledger_of_the_double_adds_up() -> None:
    async def told() -> Ledger:
        queue = MemoryQueue(demo)
        await drive(Walker(), queue)
        return await queue.ledger()

    ledger = asyncio.run(told())
    assert (ledger.unaccounted, ledger.done) == (0, 120)
