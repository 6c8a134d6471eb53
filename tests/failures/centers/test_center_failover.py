"""Centers that die while people, spiders and agents use them (fault 15): PostgreSQL, Redis, two
centers, kill -9. A caller that knows both addresses notices at most a slow call."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.runtime.clock import SystemClock
from skep.testing.faults.failover_clients import Load
from skep.testing.fleet import Fleet, running_agents, tell
from skep.testing.grounds.centers import running_center, two_centers
from skep.testing.polling import until
from skep.testing.private import free_port
from skep.testing.processes import CenterProcess
from skep.wire.client import CenterClient

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
PAGES = 60
SPIDER = """
import skep


class Pages(skep.Spider):
    name = "pages"
    url: str

    def start(self):
        yield f"{self.url}/"

    def parse(self, response):
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()
"""


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
async def test_each_center_is_killed_in_turn_under_load(
    tmp_path: Path, shared: dict[str, str], kills: int
) -> None:
    """Fault 15: clients submit and read all the time; no call fails that was tried at both,
    and the ledger is exact."""
    requests = max(2000, 200 * kills)
    async with Fleet(tmp_path, shared, latency=0.02, pages=requests) as fleet:
        centers = [fleet.center, await fleet.another_center("second")]
        await fleet.reach(*centers)
        urls = [center.url for center in centers]
        await fleet.agent("a", FEW_AT_ONCE, urls)
        await fleet.agent("b", FEW_AT_ONCE, urls[::-1])
        load = Load(fleet, centers, requests)
        calling = asyncio.create_task(load.keep_calling())
        await load.kill_in_turn(kills)
        await fleet.until_done(requests, 120)
        load.stop()
        await calling
        balance = await fleet.check()
        agents = await fleet.client.agents()
    figures = load.figures()
    tell("15", **msgspec.structs.asdict(figures), **balance.figures())
    assert figures.failed_calls == 0
    assert fleet.client.retries == 0
    assert figures.calls_in_failover > kills
    assert (balance.ledger.accepted, balance.ledger.done) == (requests, requests)
    assert len(agents) == 2


async def test_an_order_reaches_an_agent_whichever_center_holds_it(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """Beats are a minute apart: what the agent hears from the other center came over the bus
    and down its own WebSocket."""
    flags = {"center_heartbeat_every": 60.0, "center_alive_after": 200.0}
    async with two_centers(tmp_path, shared, **flags) as (one, two):
        token = (one.folder / "agent.token").read_text().strip()
        async with running_agents(1, [one.url], token, tmp_path / "agent") as (agent,):
            await until(lambda: agent.id in one.services.hub.connected)
            assert agent.id not in two.services.hub.connected
            began = time.monotonic()
            told = await two.admin.post(f"/api/v1/agents/{agent.id}/exit")
            assert told.status == 200
            async with asyncio.timeout(10):
                await agent._ended.wait()
            took = time.monotonic() - began
    tell("15", order_obeyed_after=took)
    assert took < 10


async def test_calls_side_by_side_leave_a_dead_address_once(tmp_path: Path) -> None:
    """However many calls find out at the same time, each goes on with the other address."""
    async with running_center(tmp_path) as center:
        token = (center.folder / "admin.token").read_text().strip()
        known = [f"http://127.0.0.1:{free_port()}", center.url]
        async with CenterClient(known, token, SystemClock(), Random(1)) as client:
            for count in (2, 7):
                calls = (client.call("GET", "/api/v1/ledger", None, dict) for _ in range(count))
                answers = await asyncio.gather(*calls)
                assert [answer["unaccounted"] for answer in answers] == [0] * count
                assert client.address == center.url
                client.transport.addresses.at = 0


class Pair:
    """Two centers, an agent that knows both, and people with both addresses."""

    def __init__(self, fleet: Fleet, second: CenterProcess) -> None:
        self.fleet = fleet
        self.centers = [fleet.center, second]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SKEP_")}
        reach = {
            "SKEP_CENTER": ",".join(center.url for center in self.centers),
            "SKEP_TOKEN_FILE": str(self.fleet.center.folder / "admin.token"),
            "SKEP_DATA": str(self.fleet.folder / "nowhere"),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "skep", *arguments],
            env={**kept, **self.fleet.center.env, **reach},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def skep(self, *arguments: str, given: str = "") -> str:
        """Raises AssertionError when the user would see an error."""
        with self.start(*arguments) as process:
            out, said = await asyncio.to_thread(process.communicate, given, 60)
        assert process.returncode == 0, said
        assert "error" not in said, said
        return out


@pytest.fixture
async def pair(tmp_path: Path, shared: dict[str, str]) -> AsyncIterator[Pair]:
    async with Fleet(tmp_path, shared, pages=PAGES, latency=0.05) as fleet:
        second = await fleet.another_center("second")
        await fleet.reach(fleet.center, second)
        await fleet.agent("a", FEW_AT_ONCE, [fleet.center.url, second.url])
        yield Pair(fleet, second)


async def test_commands_spiders_and_agents_go_on_with_the_other_center(pair: Pair) -> None:
    """Fault 15: `skep run --center A,B` in the middle of its crawl, its agent, and the commands
    after it do not need the center that they had begun with."""
    first, second = pair.centers
    script = pair.fleet.folder / "pages.py"
    script.write_text(SPIDER)
    items = pair.fleet.folder / "items.jsonl"
    words = ["run", str(script), "-a", f"url={pair.fleet.site.url}", "-o", str(items)]
    with pair.start(*words, "--center", f"{first.url},{second.url}") as spider:
        hits = pair.fleet.site.hits
        await pair.fleet.wait_for(lambda: sum(hits.values()) > PAGES // 4)
        await asyncio.to_thread(first.kill)
        _, said = await asyncio.to_thread(spider.communicate, "", 60)
    assert spider.returncode == 0, said
    found = [json.loads(line)["url"] for line in items.read_text().splitlines()]
    assert len(found) == len(set(found)) == PAGES + 1
    # The first address is dead now.
    info = json.loads(await pair.skep("info", "--json"))
    assert info["ledger"]["unaccounted"] == 0
    page = f"{pair.fleet.site.url}/page/1"
    await pair.skep("submit", "again", "--new", "--wait", "-", given=page)
    # And now it is the only one.
    await asyncio.to_thread(first.start)
    await asyncio.to_thread(second.kill)
    await pair.skep("submit", "more", "--new", "--wait", "-", given=page)
