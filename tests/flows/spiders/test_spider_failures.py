"""The failure rules of a run (R5), over a double that breaks its line, falls silent, repeats."""

# Spiders stand here as people write them: lists in classes, callbacks that ignore their page.
# ruff: noqa: ARG002, ARG005, RUF012

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

import skep
from skep.errors import CenterUnreachable, InvalidInput, NotEnoughAgents
from skep.spiders.ports import Reading, Turn, TurnDone
from skep.testing.clock import ManualClock
from skep.testing.grounds.spiders import ROOT, Walker, demo, drive, has_accepted, urls
from skep.testing.spider_double import MemoryQueue, run_spider


async def test_too_many_errors_fail_the_run() -> None:
    class Broken(Walker):
        start_urls = tuple(f"{ROOT}/page/{n}" for n in range(50))
        settings = {"callback_error_limit": 5}

        def parse(self, response: skep.Response) -> Iterator[Any]:
            raise RuntimeError("always")

    queue = MemoryQueue(demo)
    ending = await drive(Broken(), queue)
    assert (ending.reason, ending.good) == ("too many callback errors", False)
    assert "always" in ending.sentence
    assert queue.moves == ["fail"]
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
    assert queue.moves == ["fail"]
    # Nothing was half reported: the next driver of the run reads the page again.
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
    assert queue.moves == ["fail"]


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
    assert queue.moves == ["fail"]


class Flaky(MemoryQueue):
    """Every third turn is kept, and its answer lost; the caller tells it again."""

    broken = 0

    async def checkpoint(self, turn: Turn) -> TurnDone:
        done = await super().checkpoint(turn)
        if len(self.turns) % 3 == 0:
            self.broken += 1
            done = await super().checkpoint(turn)
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
        async def checkpoint(self, turn: Turn) -> TurnDone:
            await super().checkpoint(turn)
            return await super().checkpoint(turn)

    for kind in (MemoryQueue, Twice):
        queue = kind(demo)
        assert (await drive(Again(), queue)).reason == "finished"
        assert urls(queue) == [f"{ROOT}/page/0"] * 8


class Away(MemoryQueue):
    """The center goes away for good after some turns."""

    async def checkpoint(self, turn: Turn) -> TurnDone:
        if len(self.turns) >= 4:
            raise CenterUnreachable("connection refused")
        return await super().checkpoint(turn)


async def test_a_center_that_stays_away_ends_the_run_and_loses_nothing() -> None:
    queue = Away(demo, block_size=3)
    ending = await drive(Walker(), queue)
    assert (ending.reason, ending.good) == ("center unreachable", False)
    back = MemoryQueue.checkpoint.__get__(queue)
    queue.checkpoint = back  # type: ignore[method-assign]  # calls work again
    assert (await drive(Walker(), queue)).reason == "finished"
    assert len(queue.items) == 120


class Crowded(MemoryQueue):
    """Has too few agents for the run."""

    async def open(self, *_: Any, **__: Any) -> Any:
        raise NotEnoughAgents("3 agents are needed and 1 of 1 can be had")


async def test_a_refusal_names_its_code() -> None:
    """E8: `not_enough_agents` with the number that is needed."""
    ending = await drive(Walker(), Crowded(demo))
    assert (ending.reason, ending.good) == ("refused", False)
    assert "(not_enough_agents): 3 agents are needed" in ending.sentence


class Strict(MemoryQueue):
    """Refuses one URL, and with it the whole turn, as a center does."""

    async def checkpoint(self, turn: Turn) -> TurnDone:
        for place, request in enumerate(turn.requests):
            if request.uri.endswith("/page/13"):
                raise InvalidInput(f"request {place}: not this one")
        return await super().checkpoint(turn)


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
    assert (ending.reason, ending.good, queue.moves) == ("no answer", False, ["fail"])


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


def test_outside_the_main_thread_a_spider_runs_without_the_alarm() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run_spider(Walker(), demo)))
    thread.start()
    thread.join(20)
    assert found[0].ending.reason == "finished"


async def test_requests_that_rest_are_nobodys_silence() -> None:
    """R5: a back-off or a host's pace of hours is not a run to which nothing comes back."""
    looks = 0

    class Resting(Silent):
        async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
            nonlocal looks
            looks += 1
            if looks == 50:  # 5,000 seconds, five times the patience
                self.resting = 0
                self.held = False
            return await super().read(limit, wait, taken)

    queue = Resting(demo, clock=ManualClock(), held=True)
    queue.resting = 1_000_000
    assert (await drive(Walker(), queue)).reason == "finished"
    assert len(queue.items) == 120


async def test_found_requests_are_never_held_back() -> None:
    """R5: the limit is on what `start` sends; a large frontier does not starve it either."""

    class Fertile(skep.Spider):
        settings = {"outstanding_limit": 2}

        def start(self) -> Iterator[Any]:
            yield from (f"{ROOT}/start/{n}" for n in range(6))

        def parse(self, response: skep.Response) -> Iterator[Any]:
            if response.depth == 0:
                yield from (skep.Request(f"{response.url}/{n}") for n in range(1000))

    class Slow(MemoryQueue):
        most = 0

        async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
            reading = await super().read(limit, 0.0, taken)
            self.most = max(self.most, reading.open)
            self.advance(1 if len(self.accepted) < 4 else 500)
            return reading

    queue = Slow(lambda url: "x", held=True)
    ending = await drive(Fertile(), queue)
    assert (ending.reason, len(queue.accepted)) == ("finished", 6006)
    assert queue.most > 1000
    starts = [url for url in urls(queue)[:1000] if url.count("/") == 4]
    assert len(starts) == 2, "two starts are on their way, and no third"


async def test_memory_that_runs_out_between_callbacks_ends_the_run_too() -> None:
    class Full(MemoryQueue):
        async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
            if self.items:
                raise MemoryError
            return await super().read(limit, wait, taken)

    queue = Full(demo)
    ending = await drive(Walker(), queue)
    assert (ending.reason, queue.moves) == ("memory limit", ["fail"])
    assert queue.reason.startswith("memory limit: the spider met the memory limit")


async def test_the_run_keeps_the_reason() -> None:
    """R5: the center knows what the process knew."""
    queue = Silent(demo, clock=ManualClock(), held=True)
    ending = await drive(Walker(), queue)
    assert queue.reason == f"no answer: {ending.sentence}"
    assert "1 requests are on their way and none came back for 900 s" in ending.sentence
    queue.held = False
    again = await drive(Walker(), queue)
    assert (again.reason, queue.moves) == ("finished", ["fail", "continue", "finish"])
    assert queue.reason.startswith("finished: every request has ended")


async def test_a_driver_that_has_nothing_to_tell_shows_that_it_lives() -> None:
    queue = MemoryQueue(demo, clock=ManualClock(), held=True)
    assert isinstance(queue.clock, ManualClock)
    task = asyncio.create_task(drive(Walker(), queue))
    await has_accepted(queue)
    told = len(queue.turns)
    await queue.clock.pass_time(100)
    assert len(queue.turns) - told >= 5
    assert queue.patience == 120 + 16 * 30
    await queue.move("cancel")
    assert (await task).reason == "cancelled"
