"""Spiders whose center, whose agent or whose answers are away (faults 1, 4, 5)."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import skep
from skep.runtime.clock import SystemClock
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.testing.faultproxy import TO_SERVER, FaultProxy
from skep.testing.fleet import Fleet, tell
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
REPORTS = b"POST /node/block"
#: The first call of a spider: from now on it drives the run.
OPENING = b"/driver HTTP"
SPIDER = """
import skep


class Pages(skep.Spider):
    url: str = ""

    def start(self):
        yield from (f"{self.url}/page/{number}" for number in range(5))

    def parse(self, response):
        yield {"url": response.url}
"""


async def start_spider(fleet: Fleet, center: str, tries: int) -> Process:
    """`skep run`, as people type it."""
    (fleet.folder / "spiders.py").write_text(SPIDER)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    token = str(fleet.center.folder / "admin.token")
    words = ["run", "spiders.py", "-a", f"url={fleet.site.url}", "-s", f"center_tries={tries}"]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep", *words, "--center", center, "--token-file", token),
        cwd=fleet.folder,
        env=kept,
        stdout=PIPE,
        stderr=STDOUT,
    )


async def test_a_spider_tries_as_often_as_it_was_told(tmp_path: Path) -> None:
    """Fault 1: N tries with growing pauses, then exit code 6 and a sentence; a center that is
    there again before the last try is found."""
    tries = 4
    async with (
        Fleet(tmp_path, pages=5, with_agent=True) as fleet,
        FaultProxy(fleet.center.port) as proxy,
    ):
        proxy.cut(TO_SERVER, when=OPENING, times=None)
        began = time.monotonic()
        process = await start_spider(fleet, proxy.url, tries)
        said, _ = await process.communicate()
        took, made = time.monotonic() - began, proxy.struck
        assert (process.returncode, made) == (6, tries), said.decode()
        assert f"tried {tries} times" in said.decode()
        proxy.heal()
        proxy.cut(TO_SERVER, when=OPENING, times=tries - 1)
        process = await start_spider(fleet, proxy.url, tries)
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert proxy.struck == made + tries - 1
        ledger = await fleet.client.ledger()
    tell("1", tries=made, exit_code=6, given_up_after=took, then_up_at_try=tries, done=ledger.done)
    assert ledger.done == 5


class Many(skep.Spider):
    """Asks for 400 pages by itself, and follows nothing."""

    url: str = ""

    def start(self) -> Iterator[Any]:
        yield from (f"{self.url}/page/{number}" for number in range(400))

    def parse(self, response: skep.Response) -> Iterator[Any]:
        yield {"url": response.url}


class Impatient(Many):
    """Gives up soon."""

    settings = {"silence_seconds": 3.0}  # noqa: RUF012 - as people write it


def engine_for(fleet: Fleet, client: CenterClient, spider: skep.Spider, run: str) -> SpiderEngine:
    clock = SystemClock()
    return SpiderEngine(
        spider, HttpQueue(CenterApi(client.transport), run, clock, Random(5)), clock
    )


async def most_open(fleet: Fleet, seconds: float) -> int:
    """The most requests that were on their way at any look."""
    most, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, (await fleet.client.ledger()).open)
        await asyncio.sleep(0.1)
    return most


@pytest.mark.parametrize("stall", [2.0, pytest.param(60.0, marks=pytest.mark.slow)])
async def test_results_that_stall_hold_the_spider_back(tmp_path: Path, stall: float) -> None:
    """Fault 5: not more than 100 are on their way however long nothing comes back, and the
    spider goes on by itself."""
    clock = SystemClock()
    async with (
        Fleet(tmp_path, pages=400) as fleet,
        FaultProxy(fleet.center.port) as proxy,
        CenterClient([fleet.center.url], fleet.center.admin_token, clock, Random(5)) as client,
    ):
        await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        proxy.hold_calls(REPORTS)
        spider = Many(url=fleet.site.url)
        running = asyncio.ensure_future(engine_for(fleet, client, spider, "many").run())
        most = await most_open(fleet, stall)
        proxy.heal()
        healed, done = time.monotonic(), (await fleet.client.ledger()).done
        await fleet.until_done(done + 101)
        resumed = time.monotonic() - healed
        ending = await running
        ledger = await fleet.until_all_ended()
    tell("5", stalled=stall, most_in_flight=most, next_100_after=resumed, done=ledger.done)
    assert 0 < most <= 100
    assert (ending.reason, ledger.done) == ("finished", 400)


async def test_an_agent_is_frozen_and_the_spider_ends_after_its_limit(tmp_path: Path) -> None:
    """Faults 4, 5: nothing comes back, and the caller learns that no agent lives; the run ends
    after `silence_seconds`, and not before."""
    clock = SystemClock()
    async with (
        Fleet(tmp_path, latency=0.5, pages=400) as fleet,
        CenterClient([fleet.center.url], fleet.center.admin_token, clock, Random(4)) as client,
    ):
        agent = await fleet.agent("a", FEW_AT_ONCE)
        spider = Impatient(url=fleet.site.url)
        engine = engine_for(fleet, client, spider, "many")
        running = asyncio.ensure_future(engine.run())
        await fleet.wait_for(lambda: len(fleet.site.hits) > 0)
        agent.pause()
        frozen = time.monotonic()
        await fleet.wait_for(lambda: fleet.blocks_of(agent) == 0)
        detected = time.monotonic() - frozen
        cause = await first_reason(client)
        ending = await running
        ended = time.monotonic() - frozen
        agent.resume()
    tell("4/5", detected_after=detected, cause=cause, ended_after=ended)
    assert cause == "no_live_agent"
    assert ending.reason == "no answer"
    assert "are there agents?" in ending.sentence
    assert ended >= spider.options.silence_seconds - 0.6


async def first_reason(client: CenterClient) -> str:
    """What `skep why` says of the run."""
    found = await client.call("GET", "/api/v1/why/runs/many", None, dict)
    return str(found["reasons"][0]["code"])
