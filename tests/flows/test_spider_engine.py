"""Spiders over a real center with a real agent, and the loop's promises over a double.

The double (`skep.testing.spider_double`) keeps the contract of `RunQueue` and lets a test
hold downloads back, break the line and take the run over.
"""

# Spiders stand here as people write them: lists in classes, callbacks that ignore their page.
# ruff: noqa: ARG002, ARG005, RUF012

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import skep
from skep.embed import LocalAgent
from skep.errors import CenterUnreachable, Conflict, InvalidInput, StaleToken, Unavailable
from skep.model.ledger import Ledger
from skep.model.states import RunState
from skep.runtime.clock import SystemClock
from skep.spiders.engine import SpiderEngine
from skep.spiders.http_queue import HttpQueue
from skep.spiders.load import load_spider
from skep.spiders.ports import Reading, Turn, TurnDone
from skep.spiders.stats import Ending
from skep.testing.centers import RunningCenter, running_center
from skep.testing.clock import ManualClock
from skep.testing.faultproxy import TO_CALLER, FaultProxy
from skep.testing.pages import Pages
from skep.testing.site import DemoSite
from skep.testing.spider_double import FakePage, MemoryQueue, run_spider, try_spider
from skep.wire.client import CenterClient

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = Pages(120)
ROOT = "http://demo.test"


def demo(url: str) -> str | None:
    """The demo site's pages without a server."""
    number = url.removeprefix(f"{ROOT}/page/")
    return PAGES.page(int(number)) if number.isdigit() and int(number) < 120 else None


class Walker(skep.Spider):
    """Follows everything."""

    start_urls: Sequence[str] = (f"{ROOT}/page/0",)

    def parse(self, response: skep.Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()


async def drive(spider: skep.Spider, queue: MemoryQueue) -> Ending:
    async with asyncio.timeout(20):
        return await SpiderEngine(spider, queue, queue.clock).run()


async def has_accepted(queue: MemoryQueue) -> None:
    while not queue.accepted:  # noqa: ASYNC110 - the double has no bell for it
        await asyncio.sleep(0.01)


def urls(queue: MemoryQueue) -> list[str]:
    return [request.uri for request in queue.accepted]


# Over a real center


@pytest.fixture
async def site() -> AsyncIterator[DemoSite]:
    async with DemoSite(pages=60) as running:
        yield running


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data", egress_allow=["127.0.0.0/8"]) as running:
        agent = LocalAgent(running.local, SystemClock(), Random(3))
        await agent.start()
        try:
            yield running
        finally:
            await agent.stop()


class ItemsAnswer(msgspec.Struct):
    """What tests read of the items of a run."""

    items: list[dict[str, Any]]


async def crawl(center: RunningCenter, spider: skep.Spider, run: str) -> Ending:
    clock, rng = SystemClock(), Random(4)
    async with CenterClient([center.url], center.admin.token, clock, rng) as client:
        queue = HttpQueue(client, run, clock, rng)
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
        first, second = (HttpQueue(client, "one", clock, rng, tries=2) for _ in range(2))
        spider = Walker(start_urls=f"{site.url}/page/0")
        await first.open("one", spider.run_settings)
        await second.open("one", spider.run_settings)
        with pytest.raises(StaleToken):
            await first.turn(Turn(0))
        async with asyncio.timeout(60):
            ending = await SpiderEngine(spider, second, clock).run()
        assert ending.reason == "finished"
        assert (await second.ledger()).done == 60


async def test_without_a_center_the_run_ends_with_that_reason() -> None:
    """R5, fault 1: n tries with back-off, then a clear end."""
    clock = SystemClock()
    async with CenterClient(["http://127.0.0.1:9"], "", clock, Random(1)) as client:
        queue = HttpQueue(client, "nobody", clock, Random(1), tries=3)
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
        queue = HttpQueue(client, "torn", clock, rng)
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


# Over the double


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


async def test_too_many_errors_pause_the_run() -> None:
    class Broken(Walker):
        start_urls = tuple(f"{ROOT}/page/{n}" for n in range(50))
        settings = {"callback_error_limit": 5}

        def parse(self, response: skep.Response) -> Iterator[Any]:
            raise RuntimeError("always")

    queue = MemoryQueue(demo)
    ending = await drive(Broken(), queue)
    assert (ending.reason, ending.good) == ("too many callback errors", False)
    assert "always" in ending.sentence
    assert queue.moves == ["pause"]
    assert ending.stats.callback_errors == 5


@pytest.mark.parametrize("kind", ["loop", "pattern", "asleep", "async_loop"])
async def test_a_callback_that_never_ends_ends_its_run(kind: str) -> None:
    """Fault 59: also in a regular expression, and though the code catches everything."""

    class Endless(skep.Spider):
        start_urls = (f"{ROOT}/page/0",)
        settings = {"callback_seconds": 0.2}

        def start(self) -> Iterator[Any]:
            yield skep.Request(f"{ROOT}/page/0", kind)

        def loop(self, response: skep.Response) -> None:
            while True:
                try:
                    _ = [1] * 100
                except Exception:  # noqa: BLE001 - code that catches everything
                    continue

        def pattern(self, response: skep.Response) -> None:
            re.match(r"(a+)+$", "a" * 60 + "b")

        async def asleep(self, response: skep.Response) -> None:
            await asyncio.sleep(3600)

        async def async_loop(self, response: skep.Response) -> None:
            while True:
                pass

    queue = MemoryQueue(demo)
    ending = await drive(Endless(), queue)
    assert ending.reason == "callback time limit"
    assert queue.moves == ["pause"]
    # Nothing was half told: whoever continues the run reads the page again.
    assert [turn.blocks for turn in queue.turns] == [[]]


async def test_the_pages_before_an_endless_one_are_told() -> None:
    class Late(Walker):
        settings = {"callback_seconds": 0.3}

        def parse(self, response: skep.Response) -> Iterator[Any]:
            while response.url.endswith("/page/30"):
                pass
            yield from super().parse(response)

    queue = MemoryQueue(demo, block_size=1)
    ending = await drive(Late(), queue)
    assert ending.reason == "callback time limit"
    told = {block for turn in queue.turns for block in turn.blocks}
    assert len(told) == len(queue.items) > 0


async def test_memory_that_runs_out_ends_the_run() -> None:
    class Eater(skep.Spider):
        start_urls = (f"{ROOT}/page/0",)

        def parse(self, response: skep.Response) -> None:
            raise MemoryError

    queue = MemoryQueue(demo)
    assert (await drive(Eater(), queue)).reason == "memory limit"
    assert queue.moves == ["pause"]


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


async def test_an_endless_start_is_taken_as_there_is_room() -> None:
    """R5: outstanding over the limit pauses sending; nothing piles up in memory."""
    asked = 0

    class Endless(skep.Spider):
        settings = {"outstanding_limit": 50, "page_limit": 500}

        def start(self) -> Iterator[Any]:
            nonlocal asked
            while True:
                asked += 1
                yield f"{ROOT}/n/{asked}"

        def parse(self, response: skep.Response) -> None: ...

    queue = MemoryQueue(lambda url: "x")
    ending = await drive(Endless(), queue)
    assert ending.reason == "page limit"
    assert asked <= 500 + 2 * 50


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


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_start_that_raises_ends_the_run(kind: str) -> None:
    class Plain(skep.Spider):
        def start(self) -> Iterator[Any]:
            yield f"{ROOT}/page/0"
            raise OSError("no list today")

    class Async(skep.Spider):
        async def start(self) -> AsyncIterator[Any]:
            yield f"{ROOT}/page/0"
            raise OSError("no list today")

    queue = MemoryQueue(demo)
    ending = await drive({"plain": Plain, "async": Async}[kind](), queue)
    assert ending.reason == "start failed"
    assert "no list today" in ending.sentence
    assert queue.moves == ["pause"]


async def test_pause_ends_cleanly_and_another_process_goes_on() -> None:
    """R2: pause and continue; every page is parsed, none is told twice."""
    queue = MemoryQueue(demo, block_size=5)

    class Pausing(Walker):
        engine: Any = None

        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from super().parse(response)
            if response.url.endswith("/page/25"):
                self.engine.pause()

    spider = Pausing()
    spider.engine = SpiderEngine(spider, queue, queue.clock)
    async with asyncio.timeout(20):
        first = await spider.engine.run()
    assert (first.reason, first.good, queue.moves) == ("paused", True, ["pause"])
    kept = len(queue.items)
    assert 0 < kept < 120
    second = await drive(Walker(), queue)
    assert (second.reason, len(queue.items)) == ("finished", 120)
    assert queue.moves == ["pause", "continue", "finish"]
    blocks = [block for turn in queue.turns for block in turn.blocks]
    assert len(blocks) == len(set(blocks))


async def test_pause_wakes_a_loop_that_waits_for_pages() -> None:
    queue = MemoryQueue(demo, held=True)
    engine = SpiderEngine(Walker(), queue, queue.clock)
    task = asyncio.create_task(engine.run())
    async with asyncio.timeout(5):
        await has_accepted(queue)
        engine.pause()
        assert (await task).reason == "paused"


async def test_a_run_that_somebody_cancels_ends() -> None:
    """R2: stop by message."""
    queue = MemoryQueue(demo, held=True)
    task = asyncio.create_task(drive(Walker(), queue))
    await has_accepted(queue)
    await queue.move("cancel")
    ending = await task
    assert (ending.reason, queue.moves) == ("cancelled", ["cancel"])
    again = await drive(Walker(), queue)
    assert again.reason == "cancelled"


async def test_another_driver_ends_this_one_without_harm() -> None:
    queue = MemoryQueue(demo, block_size=5)

    class Usurped(Walker):
        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from super().parse(response)
            if response.url.endswith("/page/30"):
                queue.take_over()

    ending = await drive(Usurped(), queue)
    assert (ending.reason, queue.moves) == ("driver taken over", [])
    assert (await drive(Walker(), queue)).reason == "finished"
    assert len(queue.items) == 120


class Flaky(MemoryQueue):
    """Every third turn is kept, and its answer lost; the caller tells it again."""

    broken = 0

    async def turn(self, turn: Turn) -> TurnDone:
        done = await super().turn(turn)
        if len(self.turns) % 3 == 0:
            self.broken += 1
            done = await super().turn(turn)
        return done


async def test_a_turn_told_twice_counts_once() -> None:
    """R5: a late duplicate does no harm; items are numbered per page."""
    queue = Flaky(demo, block_size=3)
    ending = await drive(Walker(), queue)
    assert (ending.reason, len(queue.items), len(urls(queue))) == ("finished", 120, 120)
    assert queue.broken > 0


async def test_requests_wanted_again_are_one_request_when_a_turn_is_told_twice() -> None:
    """R5: also what the run has had before is asked for exactly as often as it was wanted."""

    class Again(skep.Spider):
        start_urls = (f"{ROOT}/page/0",)

        def start(self) -> Iterator[Any]:
            for _ in range(2):
                yield skep.Request(f"{ROOT}/page/0", again=True)

        def parse(self, response: skep.Response) -> Iterator[Any]:
            if response.depth < 3:
                yield response.request.replace(again=True)

    class Twice(MemoryQueue):
        async def turn(self, turn: Turn) -> TurnDone:
            await super().turn(turn)
            return await super().turn(turn)

    for kind in (MemoryQueue, Twice):
        queue = kind(demo)
        assert (await drive(Again(), queue)).reason == "finished"
        assert urls(queue) == [f"{ROOT}/page/0"] * 8


async def test_items_of_an_errback_do_not_hide_those_of_the_page() -> None:
    """A dead request that is sent again by hand may work."""

    class Either(skep.Spider):
        start_urls = ("http://a.test/",)

        def parse(self, response: skep.Response) -> dict[str, str]:
            return {"title": response.title}

        def failed(self, failure: skep.Failure) -> dict[str, str]:
            return {"failed": failure.kind}

    site: dict[str, str | bytes | FakePage] = {}
    queue = MemoryQueue(site)
    await drive(Either(), queue)
    site["http://a.test/"] = "<title>Back</title>"
    queue.revive()
    await drive(Either(), queue)
    assert list(queue.items.values()) == [{"failed": "status"}, {"title": "Back"}]


@pytest.mark.parametrize(("verb", "reason"), [("cancel", "cancelled"), ("finish", "finished")])
async def test_a_run_that_ended_while_a_page_was_parsed(verb: str, reason: str) -> None:
    """R2: the center refuses the turn, and the engine says why."""

    class Ended(MemoryQueue):
        async def turn(self, turn: Turn) -> TurnDone:
            if len(self.turns) == 2:
                await self.move(verb)
                raise Conflict("the run has ended")
            return await super().turn(turn)

    assert (await drive(Walker(), Ended(demo, block_size=5))).reason == reason


async def test_a_run_that_somebody_pauses_waits_for_them() -> None:
    """R2: the spider stays, nothing new is downloaded, and it goes on when they say so."""

    class Watched(MemoryQueue):
        looks = 0
        looked_twice = asyncio.Event()

        async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
            self.looks += self.state is RunState.PAUSED and not taken
            if self.looks > 1:
                self.looked_twice.set()
            return await super().read(limit, wait, taken)

    queue = Watched(demo, block_size=5)

    class Paused(Walker):
        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from super().parse(response)
            if response.url.endswith("/page/15"):
                queue.state = RunState.PAUSED

    task = asyncio.create_task(drive(Paused(), queue))
    async with asyncio.timeout(10):
        await queue.looked_twice.wait()
        assert not task.done()
        assert len(queue.items) < 120
        queue.state = RunState.RUNNING
        assert (await task).reason == "finished"
    assert len(queue.items) == 120


async def test_large_pages_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.spiders.engine.READ_BYTES", 100_000)
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


class Away(MemoryQueue):
    """The center goes away for good after some turns."""

    async def turn(self, turn: Turn) -> TurnDone:
        if len(self.turns) >= 4:
            raise CenterUnreachable("connection refused")
        return await super().turn(turn)


async def test_a_center_that_stays_away_ends_the_run_and_loses_nothing() -> None:
    queue = Away(demo, block_size=3)
    ending = await drive(Walker(), queue)
    assert (ending.reason, ending.good) == ("center unreachable", False)
    back = MemoryQueue.turn.__get__(queue)
    queue.turn = back  # type: ignore[method-assign]  # the line is mended
    assert (await drive(Walker(), queue)).reason == "finished"
    assert len(queue.items) == 120


class Strict(MemoryQueue):
    """Refuses one URL, and with it the whole turn, as a center does."""

    async def turn(self, turn: Turn) -> TurnDone:
        for place, request in enumerate(turn.requests):
            if request.uri.endswith("/page/13"):
                raise InvalidInput(f"request {place}: not this one")
        return await super().turn(turn)


async def test_one_refused_request_does_not_hold_up_the_others() -> None:
    queue = Strict(demo)
    ending = await drive(Walker(), queue)
    assert ending.reason == "finished"
    assert ending.stats.not_urls == 1
    assert f"{ROOT}/page/13" not in urls(queue)


class Silent(MemoryQueue):
    """Nothing ever comes back, and time passes."""

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(100.0)
        return await super().read(limit, 0.0, taken)


async def test_silence_ends_the_run_with_an_error() -> None:
    """R5: outstanding requests, and nothing returns."""
    queue = Silent(demo, clock=ManualClock(), held=True)
    ending = await drive(Walker(), queue)
    assert (ending.reason, ending.good, queue.moves) == ("no answer", False, ["pause"])


async def test_a_late_block_is_not_missed() -> None:
    """A block may end between the two looks of one reading: the end is confirmed."""

    class Racing(MemoryQueue):
        hid = False

        async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
            reading = await super().read(limit, wait, taken)
            if reading.blocks and not taken and not self.hid and self.items:
                self.hid = True
                return Reading([], 0, self.state)
            return reading

    queue = Racing(demo, block_size=7)
    assert (await drive(Walker(), queue)).reason == "finished"
    assert (queue.hid, len(queue.items)) == (True, 120)


async def test_a_flood_of_one_page_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.spiders.turns.TURN_REQUESTS", 100)

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
    monkeypatch.setattr("skep.spiders.harvest.PAGE_BYTES", 10_000)

    class Much(skep.Spider):
        start_urls = ("http://a.test/",)

        def parse(self, response: skep.Response) -> Iterator[Any]:
            yield from ({"n": n, "text": "x" * 100} for n in range(100))

    tried = await try_spider(Much(), lambda url: "x")
    assert (tried.items, tried.ending.stats.callback_errors) == ([], 1)


async def test_hooks_are_called_once_with_the_reason() -> None:
    calls: list[str] = []

    class Hooked(Walker):
        async def opened(self) -> None:
            calls.append("opened")

        def closed(self, reason: str) -> None:
            calls.append(reason)
            raise ValueError("too late to matter")

    assert (await try_spider(Hooked(), demo)).ending.reason == "finished"
    assert calls == ["opened", "finished"]


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


def test_outside_the_main_thread_a_spider_runs_without_the_alarm() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run_spider(Walker(), demo)))
    thread.start()
    thread.join(20)
    assert found[0].ending.reason == "finished"


async def test_the_queue_over_http_tries_again_what_may_work_later(clock: ManualClock) -> None:
    """R5, fault 1: capped back-off with jitter, then a clear end."""
    tries = 0

    class Client(CenterClient):
        async def call(self, *_: Any, **__: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries < 4:
                raise Unavailable("the store does not answer")
            return b""

    client = Client(["http://127.0.0.1:9"], "", clock, Random(1))
    queue = HttpQueue(client, "web", clock, Random(1), tries=5)
    task = asyncio.create_task(queue.move("pause"))
    await clock.pass_time(30)
    await asyncio.wait_for(task, 1)
    assert tries == 4


def test_the_ledger_of_the_double_adds_up() -> None:
    async def told() -> Ledger:
        queue = MemoryQueue(demo)
        await drive(Walker(), queue)
        return await queue.ledger()

    ledger = asyncio.run(told())
    assert (ledger.unaccounted, ledger.done) == (0, 120)
