"""Pause, continue, cancel, take over: what happens to a spider while it runs (R2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import skep
from skep.errors import Conflict
from skep.model.states import RunState
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.ports import Reading, Turn, TurnDone
from skep.testing.grounds.spiders import Walker, demo, drive, has_accepted
from skep.testing.spider_double import FakePage, MemoryQueue, try_spider


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


async def test_a_run_that_a_user_cancels_ends() -> None:
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


@pytest.mark.parametrize(("verb", "reason"), [("cancel", "cancelled"), ("finish", "finished")])
async def test_a_run_that_ended_while_a_page_was_parsed(verb: str, reason: str) -> None:
    """R2: the center refuses the turn, and the engine says why."""

    class Ended(MemoryQueue):
        async def checkpoint(self, turn: Turn) -> TurnDone:
            if len(self.turns) == 2:
                await self.move(verb)
                raise Conflict("the run has ended")
            return await super().checkpoint(turn)

    assert (await drive(Walker(), Ended(demo, block_size=5))).reason == reason


async def test_a_run_that_a_user_pauses_waits() -> None:
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


async def test_a_restart_that_a_user_asks_for() -> None:
    """R2: whole blocks are told, the run stays running, and the process can start anew."""
    queue = MemoryQueue(demo, held=True)
    task = asyncio.create_task(drive(Walker(), queue))
    await has_accepted(queue)
    queue.asked = "restart"
    queue.advance(0)
    ending = await task
    assert (ending.reason, ending.good, queue.moves) == ("restart", True, [])
    queue.asked, queue.held = "", False
    assert (await drive(Walker(), queue)).reason == "finished"
    assert len(queue.items) == 120


async def test_a_run_that_the_center_gave_up_ends() -> None:
    """R5: this process was believed dead; it does not go on behind the center's back."""
    queue = MemoryQueue(demo, held=True)
    task = asyncio.create_task(drive(Walker(), queue))
    await has_accepted(queue)
    queue.reason = "driver silent: no call for 700 s"
    await queue.move("fail")
    ending = await task
    assert (ending.reason, ending.good) == ("given up", False)
    assert "no call for 700 s" in ending.sentence
    assert queue.moves == ["fail"]
