"""A spider's process is steered by messages to its run, and its run has figures (R2, R3)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

import skep
from skep.center import loops
from skep.cli.commands.results.run_view import in_words
from skep.runtime.clock import SystemClock
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.testing.grounds.centers import HandAgent, RunningCenter, running_center
from skep.testing.grounds.jobs import ENDLESS_SPIDER, local_agent
from skep.testing.polling import until
from skep.testing.site import DemoSite
from skep.wire.api.runs import RunView
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi

#: R2: a message reaches the process within this many seconds.
SOON = 2.0
PATIENCE = 60.0


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    flags = {"egress_allow": ["127.0.0.0/8"]}
    async with running_center(tmp_path / "data", **flags) as running, local_agent(running):
        yield running


class Steered:
    """A spider's process, what it says, and the messages to its run."""

    def __init__(self, center: RunningCenter, process: asyncio.subprocess.Process) -> None:
        self.center = center
        self.process = process
        self.said = ""

    async def hears(self, words: str) -> None:
        assert self.process.stderr is not None
        while words not in self.said:
            line = await self.process.stderr.readline()
            assert line, f"it ended without {words!r}: {self.said}"
            self.said += line.decode()

    async def message(self, verb: str, words: str) -> float:
        """Seconds until the process had heard of it."""
        self.said = ""
        began = time.monotonic()
        answer = await self.center.admin.post(f"/api/v1/runs/endless/{verb}")
        assert answer.status == 200, answer.content
        async with asyncio.timeout(PATIENCE):
            await self.hears(words)
        return time.monotonic() - began


async def view(center: RunningCenter, run: str = "endless") -> dict[str, Any]:
    found: dict[str, Any] = (await center.admin.get(f"/api/v1/runs/{run}")).json()
    return found


async def run_once(
    center: RunningCenter, run: str, condition: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The run, as soon as the condition holds."""
    return await until(lambda: view(center, run), condition, seconds=PATIENCE)


async def done_over(center: RunningCenter, count: int) -> int:
    found = await run_once(center, "endless", lambda view: view["ledger"]["done"] > count)
    return int(found["ledger"]["done"])


async def test_messages_reach_the_process_within_two_seconds(
    center: RunningCenter, tmp_path: Path
) -> None:
    """R2: pause, continue, restart, stop; a paused run starts nothing new."""
    (tmp_path / "endless.py").write_text(ENDLESS_SPIDER)
    await center.admin.put("/api/v1/runs/endless", {"settings": {"block_size": 5}})
    async with DemoSite(pages=50, latency=0.02) as site:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep.spiders", str(tmp_path / "endless.py")),
            *("--data", str(center.folder), "-a", f"url={site.url}"),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            spider = Steered(center, process)
            done = await done_over(center, 20)
            assert await spider.message("pause", "paused by message") < SOON
            paused = await run_once(center, "endless", lambda view: not view["ledger"]["leased"])
            assert (paused["run"]["state"], paused["run"]["reason"]) == (
                "paused",
                "paused by message",
            )
            hits = sum(site.hits.values())
            assert paused["ledger"]["accepted"] == (await view(center))["ledger"]["accepted"]
            assert await spider.message("continue", "continued by message") < SOON
            await done_over(center, done + 20)
            assert sum(site.hits.values()) > hits
            assert await spider.message("restart", "restart: ") < SOON
            again = await done_over(center, (await view(center))["ledger"]["done"] + 40)
            assert process.returncode is None, "the same process, with fresh code"
            assert again > done
            assert await spider.message("cancel", "cancelled: ") < SOON
            async with asyncio.timeout(PATIENCE):
                assert await process.wait() == 1
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    ended = await view(center)
    assert (ended["run"]["state"], ended["run"]["reason"]) == ("cancelled", "cancelled by message")


async def test_figures_at_any_time(center: RunningCenter) -> None:
    """R3: left, total, success, failed, rate, agents used, bytes, per-status counts."""
    async with DemoSite(pages=30) as site:
        paths = [f"/page/{n}" for n in range(20)] + ["/status/404", "/status/500"]
        await center.admin.put("/api/v1/runs/web", {"settings": {"retries": 0}})
        await center.put("web", [{"uri": site.url + path} for path in paths])
        found = await run_once(center, "web", lambda view: view["figures"]["answers"] == 22)
    figures = found["figures"]
    assert figures["answers"] == 22
    assert figures["statuses"] == {"200": 20, "404": 1, "500": 1}
    assert figures["failures"] == {"status": 2}
    assert list(figures["agents"].values()) == [22]
    assert figures["received"] > 20 * 500
    assert figures["rate"] > 0.3
    said = in_words(msgspec.convert(found, RunView), time.time())
    assert "22 total, 0 left, 20 success, 2 failed" in said
    assert "200: 20, 404: 1, 500: 1" in said


async def test_a_run_without_a_driver(center: RunningCenter) -> None:
    await center.admin.put("/api/v1/runs/web", {})
    answer = await center.admin.post("/api/v1/runs/web/restart")
    assert (answer.status, b"no process drives it" in answer.content) == (409, True)


async def test_a_driver_that_vanished_fails_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: kill -9, a hang in a C library, a machine that is gone: the run says so."""
    monkeypatch.setattr(loops, "DRIVERS_EVERY", 0.1)
    async with running_center(tmp_path / "data") as center:
        opened = await center.admin.post("/requestqueue/gone/driver", {"patience": 0.5})
        assert opened.json()["run"]["state"] == "running"
        found = await run_once(center, "gone", lambda view: view["run"]["state"] != "running")
        assert found["run"]["state"] == "failed"
        assert found["run"]["reason"].startswith("driver silent: no call from its process for")
        driver = opened.json()["driver"]
        late = await center.admin.post("/requestqueue/gone/read", {"wait": 30, "state": "running"})
        assert late.json()["state"] == "failed"
        said = {"driver": driver, "state": "finished", "reason": "finished: all of it"}
        assert (await center.admin.post("/requestqueue/gone/end", said)).status == 409


async def test_finish_ends_what_is_open(tmp_path: Path) -> None:
    """Without an agent everything waits; a person ends the run, and nothing is left."""
    async with running_center(tmp_path / "data") as center:
        await center.admin.put("/api/v1/runs/web", {})
        await center.put("web", [{"uri": f"http://a.test/{n}"} for n in range(30)])
        found = (await center.admin.post("/api/v1/runs/web/finish")).json()
        assert (found["run"]["state"], found["run"]["reason"]) == (
            "finished",
            "finished by message",
        )
        assert found["ledger"]["cancelled"] == 30
        assert found["ledger"]["waiting"] == found["ledger"]["queued"] == 0


class Owed(skep.Spider):
    """Asks for one page, and keeps what became of it."""

    start_urls = ("http://a.test/",)
    settings: ClassVar[dict[str, Any]] = {
        "answer_seconds": 0.2, "answer_retries": 1, "time_limit": 0.2,
    }  # fmt: skip

    def failed(self, failure: skep.Failure) -> dict[str, str]:
        return {"kind": failure.kind, "detail": failure.detail}


async def test_a_request_that_no_agent_answers_is_retried_and_then_reported(
    tmp_path: Path,
) -> None:
    """R5: agents hold it, renew their leases without end and report nothing."""
    clock, rng = SystemClock(), Random(4)
    async with (
        running_center(tmp_path / "data", center_sweep_every=0.1, center_alive_after=3.0) as center,
        CenterClient([center.url], center.admin.token, clock, rng) as client,
    ):
        mute = HandAgent(center.agent, "mute")
        await mute.register()
        engine = SpiderEngine(
            Owed(), HttpQueue(CenterApi(client.transport), "owed", clock, rng), clock
        )
        driven = asyncio.create_task(engine.run())
        leases = 0
        async with asyncio.timeout(PATIENCE):
            while not driven.done():
                leases += len(await mute.lease(wait=0.1))
                await mute.heartbeat()
        ending = await driven
        assert (ending.reason, ending.stats.failures, leases) == ("finished", {"lost": 1}, 2)
        items = (await center.admin.get("/api/v1/runs/owed/items")).json()["items"]
    assert items[0]["data"]["kind"] == "lost"
    assert "holds it and does not answer; lost 2 times" in items[0]["data"]["detail"]
