"""What runs for long must not grow (fault 46). The judge of the soak, with planted leaks, is
tried in `tests/unit/bench/test_soak.py`; `python -m bench soak --minutes 60` is the thing
itself."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy.util import LRUCache

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.downloaders.ports import Fetched
from skep.model.content_rules import ContentRules, ContentStep
from skep.model.proxies import SessionRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.testing.doubles.manual_agents import ManualAgent, open_run
from skep.testing.fleet import tell
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.testing.site import DemoSite

ROOT = Path(__file__).parents[3]
PLACE = "http://127.0.0.1"
#: A list of rows, by their numbers.
NUMBERS = re.compile(r"\(\d+(?:, ?\d+)*\)")
#: What a run's downloader consists of.
PARTS = {"HttpDownloader", "Engine", "Poller", "Slot", "Flight", "FrameMaker", "Ways"}


def parts_alive() -> Counter[str]:
    names = (type(one).__name__ for one in gc.get_objects())
    return Counter(name for name in names if name in PARTS)


async def download(downloader: HttpDownloader, urls: list[str]) -> list[Fetched]:
    found: list[Fetched] = []
    all_there = asyncio.Event()

    def take(fetched: Fetched) -> None:
        found.append(fetched)
        if len(found) == len(urls):
            all_there.set()

    for number, url in enumerate(urls):
        downloader.start(Work(number, url), take)
    await asyncio.wait_for(all_there.wait(), 30)
    return found


@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(),
        RunSettings(cookies=False),
        RunSettings(sessions=SessionRules(count=2)),
        RunSettings(content=ContentRules(steps=(ContentStep(css="h1"),))),
    ],
    ids=["plain", "no-cookies", "sessions", "content"],
)
async def test_a_closed_downloader_leaves_nothing_to_the_collector(settings: RunSettings) -> None:
    """Fault 46: an agent's collector hardly ever comes, so what a run has used must go when its
    last reference does. Twelve minutes of short runs cost 60 MB while it did not."""
    kind = HttpKind(SystemClock(), Random(46), EgressPolicy(("127.0.0.0/8",)))
    async with DemoSite(20) as site:
        gc.collect()
        gc.disable()
        try:
            before = parts_alive()
            downloader = kind.open("r", settings)
            found = await download(downloader, site.page_urls())
            assert [one.outcome.failure for one in found] == [""] * 20
            assert parts_alive()["Slot"] > before["Slot"], "else nothing is tried here"
            await downloader.close()
            del downloader, found
            # A thread that ends has its last frames for a moment longer; a cycle never ends.
            await until(partial(nothing_more, before))
        finally:
            gc.enable()


async def nothing_more(before: Counter[str]) -> bool:
    return parts_alive() == before


def kept_statements() -> Counter[str]:
    """Statements that the store of this process keeps compiled, with numbers made alike."""
    caches = (one for one in gc.get_objects() if isinstance(one, LRUCache))
    kept = {str(getattr(one, "string", "")) for cache in caches for one in cache.values()}
    return Counter(NUMBERS.sub("(#)", text) for text in kept if text)


async def one_life(center: RunningCenter, hand: ManualAgent, name: str) -> None:
    """A run from its first request to its last block, one of its requests too late."""
    assert (await open_run(center, name, {})).status == 200
    soon = {"uri": f"{PLACE}/{name}/late", "expires_in": 0.001}
    await center.admin.post(f"/requestqueue/{name}", [soon])
    await center.put(name, [f"{PLACE}/{name}/{number}" for number in range(70)])
    ended = 0
    async with asyncio.timeout(30):
        while ended < 71:
            await center.dispatched()
            for block in await hand.lease(want=64, wait=0.2):
                await hand.finish(block)
            ledger = await center.ledger(name)
            ended = ledger.done + ledger.expired
    blocks = (await center.admin.get(f"/requestqueue/{name}?limit=100")).json()["blocks"]
    ids = {"blocks": [block["id"] for block in blocks]}
    await center.admin.post(f"/requestqueue/{name}/collected", ids)
    await center.admin.post(f"/api/v1/runs/{name}/finish")
    await center.admin.post("/api/v1/storage/clean")


async def test_a_center_keeps_no_statement_that_never_comes_again(tmp_path: Path) -> None:
    """Fault 46: numbers of rows that are written out make a new statement each time. Kept
    compiled they took 25 MB of a center, and the place of those that do come again."""
    async with running_center(tmp_path, keep_rows_age=0.001) as center:
        hand = await ManualAgent(center, "a").start()
        try:
            for number in range(4):
                await one_life(center, hand, f"r{number}")
        finally:
            await hand.die()
        kept = kept_statements()
    assert sum(kept.values()) > 20, "else nothing is looked at"
    assert [text for text, times in kept.items() if times > 1] == []


async def soaked(minutes: float) -> tuple[int, dict[str, Any]]:
    """The bench as a child; its exit code and its last line."""
    words = ["-m", "bench", "soak", "--minutes", str(minutes), "--json"]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *words), cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    try:
        said, trouble = await asyncio.wait_for(child.communicate(), minutes * 60 + 180)
    except BaseException:
        child.terminate()
        await child.wait()
        raise
    assert said, trouble.decode()
    return child.returncode or 0, json.loads(said.splitlines()[-1])


@pytest.mark.slow
async def test_a_short_soak() -> None:
    """Fault 46: the machinery, in little more than a minute: too short to judge memory, long
    enough to see that everything is done, sampled and deleted, with an exact ledger."""
    code, told = await soaked(1.2)
    found = told["sqlite"]
    tell(
        "46",
        minutes=told["minutes"],
        runs=found["runs"],
        accepted=found["accepted"],
        forgotten=found["forgotten"],
        **{f"{who}_mb_an_hour_at_least": found[who]["memory_an_hour"]["low"] for who in WHO},
        files_an_hour=max(found[who]["files_an_hour"]["slope"] for who in WHO),
        p99_ms_first=found["call_p99_ms"]["first_third"],
        p99_ms_last=found["call_p99_ms"]["last_third"],
    )
    assert code == (0 if told["ok"] else 1)
    assert told["ok"] == (not found["leaks"])
    assert found["offered"] <= found["accepted"]
    assert found["accepted"] == found["done"] + found["dead"] + found["expired"]
    assert min(found["runs"], found["crawls"], found["forgotten"]) > 1
    assert not [leak for leak in found["leaks"] if leak.startswith("files")]


WHO = ("center", "agent")
