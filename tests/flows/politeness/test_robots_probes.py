"""A robots.txt that cannot be fetched: requests wait, and fail together after some tries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.agent.app import Agent
from skep.downloaders.registry import kinds
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.toy_agent import build_agent
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.testing.servers.recording_sites import Ask, Recorder, Reply
from skep.wire.client import CenterClient

LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))
QUICK = AgentSettings(concurrency=4, report_every=0.1, lease_wait=0.5, drain_seconds=1.0)
HOST, REFUSING = "127.0.1.1", "127.0.4.1"
RULE = {"rate": 50, "robots": True}


class Ground:
    """A center and an agent; `web` answers for HOST, and nothing listens at REFUSING."""

    def __init__(self, center: RunningCenter, web: Recorder) -> None:
        self.center = center
        self.web = web

    async def submit(self, run: str, urls: list[str], **settings: Any) -> None:
        await self.center.open_run(run, **settings)
        await self.center.put(run, [{"uri": url} for url in urls])

    async def ledger(self, run: str) -> Any:
        return await self.center.services.store.ledgers.read(run)

    async def ended(self, run: str, seconds: float = 20.0) -> Any:
        await until(lambda: self.ledger(run), lambda ledger: not ledger.open, seconds=seconds)
        return await self.center.ledger(run)

    @property
    def probes(self) -> int:
        return self.web.paths().count("/robots.txt")


@asynccontextmanager
async def build(folder: Path, web: Recorder, **flags: Any) -> AsyncIterator[Ground]:
    quick = {
        "center_heartbeat_every": 0.2,
        "center_sweep_every": 0.2,
        "lanes_reconcile_every": 0.5,
        "lanes_retry_first": 0.1,
        "sites_cooling_first": 0.6,
        **flags,
    }
    async with running_center(folder / "center", **quick) as center:
        for host in (HOST, REFUSING):
            answer = await center.admin.put(f"/api/v1/sites/{host}", RULE)
            assert answer.status == 200, answer.content
        clock, rng = SystemClock(), Random(7)
        client = CenterClient([center.url], center.local.agent_token, clock, rng)
        agent: Agent = build_agent(client, folder / "agent", QUICK, kinds(clock, rng, LOOPBACK))
        life = asyncio.ensure_future(agent.run())
        try:
            yield Ground(center, web)
        finally:
            agent.stop()
            await asyncio.gather(life, return_exceptions=True)
            await client.close()


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with Recorder(1) as web, build(tmp_path, web) as ground:
        yield ground


def broken(ask: Ask) -> Reply | None:
    return Reply(status=500) if ask.path == "/robots.txt" else Reply()


async def test_requests_wait_while_robots_txt_fails_and_are_fetched_when_it_works(
    ground: Ground,
) -> None:
    """H2: two tries fail, the third works: nothing is dead, every page is fetched."""
    ground.web.answer = lambda ask: broken(ask) if ground.probes <= 2 else Reply()
    await ground.submit("r", [ground.web.url(HOST, f"/{n}") for n in range(12)])
    ledger = await ground.ended("r")
    assert (ledger.done, ledger.dead, ground.probes) == (12, 0, 3)


async def test_requests_fail_together_after_some_tries_and_are_retried_together(
    ground: Ground,
) -> None:
    """H3: three tries, then all of them are dead for the same reason; sent again they begin
    with one try."""
    ground.web.answer = broken
    await ground.submit("r", [ground.web.url(HOST, f"/{n}") for n in range(30)])
    ledger = await ground.ended("r")
    assert (ledger.dead, ground.probes) == (30, 3)
    groups = (await ground.center.admin.get("/api/v1/failures?run=r")).json()["items"]
    ((failure, requests, text),) = [(g["failure"], g["requests"], g["text"]) for g in groups]
    assert (failure, requests) == ("status", 30)
    assert "robots.txt" in text
    assert set(ground.web.paths()) == {"/robots.txt"}
    ground.web.answer = lambda _: Reply()
    await ground.center.services.store.requests.revive("r")
    ground.center.services.signals.dispatcher.request()
    ledger = await ground.ended("r")
    assert (ledger.done, ground.probes) == (30, 4)


async def test_a_host_that_refuses_ends_sooner_and_a_later_run_begins_with_a_try(
    ground: Ground,
) -> None:
    """H3: 12 links to a refused port need two tries, for each of three runs alike; the site
    is not cooling afterwards."""
    loop = asyncio.get_running_loop()
    seconds = []
    for run in ("a", "b", "c"):
        began = loop.time()
        await ground.submit(run, [f"http://{REFUSING}:9/{n}" for n in range(12)])
        ledger = await ground.ended(run)
        seconds.append(loop.time() - began)
        assert (ledger.dead, ledger.accepted) == (12, 12)
    assert max(seconds) < 8.0
    site = (await ground.center.admin.get(f"/api/v1/sites/{REFUSING}")).json()
    assert (site["strikes"], site["cooling_until"]) == (0, 0)


async def test_why_names_the_cause_and_a_new_run_does_not_wait_for_the_pause(
    tmp_path: Path,
) -> None:
    """H2, H3: while one run waits, `why` says what is wrong with robots.txt; another run asks
    at once."""
    async with Recorder(1) as web:
        web.answer = broken
        async with build(tmp_path, web, sites_cooling_first=60.0) as ground:
            await ground.submit("a", [web.url(HOST, "/1")])
            await until(lambda: ground.ledger("a"), lambda ledger: ledger.delayed, seconds=10)
            assert (await ground.ledger("a")).dead == 0
            why = (await ground.center.admin.get("/api/v1/why/runs/a")).json()
            assert "robots.txt could not be fetched" in str(why)
            assert "500" in str(why)
            web.answer = lambda _: Reply()
            await ground.submit("b", [web.url(HOST, "/2")])
            assert (await ground.ended("b")).done == 1


@pytest.mark.parametrize("url", [f"http://{REFUSING}:9", "http://nosuch.invalid"])
async def test_a_dead_host_ends_a_run_without_robots_txt_too(ground: Ground, url: str) -> None:
    """H3: 30 links to a host that does not answer, robots.txt switched off or read before: a
    few fail one by one, the others together, and the next run begins with a try."""
    host = url.removeprefix("http://").partition(":")[0]
    rule = {"rate": 20, "robots": False, "concurrency": 1}
    assert (await ground.center.admin.put(f"/api/v1/sites/{host}", rule)).status == 200
    loop = asyncio.get_running_loop()
    for run in ("a", "b"):
        began = loop.time()
        await ground.submit(run, [f"{url}/{n}" for n in range(30)])
        ledger = await ground.ended(run)
        assert (ledger.dead, ledger.accepted) == (30, 30)
        assert loop.time() - began < 10.0
        groups = (await ground.center.admin.get(f"/api/v1/failures?run={run}")).json()["items"]
        assert sum(g["requests"] for g in groups) == 30
        together = [g["requests"] for g in groups if "the host does not answer" in g["text"]]
        assert sum(together) >= 20, groups
    site = (await ground.center.admin.get(f"/api/v1/sites/{host}")).json()
    assert (site["strikes"], site["cooling_until"]) == (0, 0)


async def test_code_and_invented_schemes_have_no_robots_txt_and_no_rate(ground: Ground) -> None:
    """E9: only what our own downloaders fetch over the network waits for robots.txt and for
    the default rate; the true reason of the failure is told."""
    await ground.submit(
        "code",
        [f"http://unresolvable.invalid/{n}" for n in range(20)],
        downloader="shell",
        code={"source": "echo hi"},
    )
    ledger = await ground.ended("code", seconds=8)
    assert ledger.dead == 20
    groups = (await ground.center.admin.get("/api/v1/failures?run=code")).json()["items"]
    assert "robots" not in str(groups)
    sites = (await ground.center.admin.get("/api/v1/sites")).json()["items"]
    assert not any(site["pace"] for site in sites if site["host"] == "unresolvable.invalid")
