"""The agent and the real center, over real HTTP; the ledger is the last word of each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.agent.app import Agent
from skep.downloaders.registry import kinds as real_kinds
from skep.embed.embedded import LocalCenter
from skep.model.ledger import Ledger
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, CenterSettings, EgressSettings, Settings
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.grounds.record_checks import assert_whole
from skep.testing.polling import until
from skep.testing.site import DemoSite
from skep.wire.client import CenterClient

LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))
FAST = AgentSettings(concurrency=16, report_every=0.1, lease_wait=1.0, drain_seconds=2.0)


class LedgerAnswer(msgspec.Struct):
    """What tests read of the ledger's answer."""

    ledger: Ledger
    unaccounted: int


class Bench:
    """A center in a folder, its public API, and a site to download from."""

    def __init__(self, folder: Path, site: DemoSite) -> None:
        self.folder = folder
        self.site = site
        self.port = 0
        self.center: LocalCenter | None = None
        self.api: CenterClient | None = None

    async def open(self) -> None:
        """On the same port as before, if there was one."""
        settings = Settings(
            data=str(self.folder / "center"),
            center=CenterSettings(port=self.port, heartbeat_every=0.2),
            egress=LOOPBACK,
        )
        self.center = LocalCenter(settings, SystemClock(), Random(1))
        await self.center.start()
        self.port = int(self.center.url.rpartition(":")[2])
        self.api = CenterClient(
            [self.center.url], self.center.admin_token, SystemClock(), Random(2)
        )

    async def close(self) -> None:
        assert self.center is not None
        assert self.api is not None
        await self.api.close()
        await self.center.stop()

    async def submit(self, count: int, first: int = 0) -> None:
        assert self.api is not None
        settings = {"settings": {"host_concurrency": 16, "block_size": 20}}
        await self.api.call("PUT", "/api/v1/runs/web", settings, bytes)
        urls = [f"{self.site.url}/page/{n % 50}?n={n}" for n in range(first, first + count)]
        offered = [{"uri": url} for url in urls]
        await self.api.call("POST", "/requestqueue/web", offered, bytes)

    async def ledger(self) -> Ledger:
        assert self.api is not None
        answer = await self.api.call("GET", "/api/v1/ledger", None, LedgerAnswer)
        assert answer.unaccounted == 0
        return answer.ledger

    async def until_done(self, count: int, seconds: float = 20.0) -> None:
        await until(self.ledger, lambda ledger: ledger.done >= count, seconds=seconds)

    def agent(self, settings: AgentSettings = FAST) -> AbstractAsyncContextManager[Agent]:
        assert self.center is not None
        kinds = real_kinds(SystemClock(), Random(3), LOOPBACK)
        folder = self.folder / "agent"
        url = f"http://127.0.0.1:{self.port}"
        return running_agent([url], self.center.agent_token, folder, kinds, settings)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with DemoSite() as site:
        bench = Bench(tmp_path, site)
        await bench.open()
        try:
            yield bench
            if bench.center is not None:
                await assert_whole(bench.center.center.services)
        finally:
            await bench.close()


async def test_everything_that_was_accepted_is_done(bench: Bench) -> None:
    await bench.submit(500)
    async with bench.agent() as agent:
        await bench.until_done(500)
        assert agent.holding.lost == 0
    ledger = await bench.ledger()
    assert (ledger.accepted, ledger.done) == (500, 500)


async def test_drains_under_load_leave_no_lease_behind(bench: Bench) -> None:
    """Fault 47: right after each stop nothing is leased, and nothing is done twice."""
    await bench.submit(1000)
    for _ in range(5):
        done = (await bench.ledger()).done
        async with bench.agent():
            await bench.until_done(done + 40)
        assert (await bench.ledger()).leased == 0
    async with bench.agent() as agent:
        await bench.until_done(1000)
        assert agent.holding.lost == 0


async def test_a_center_that_restarts_loses_nothing(bench: Bench) -> None:
    """Faults 8, 10, 12: the agent beats on, keeps its results, and hands them in."""
    await bench.submit(600)
    async with bench.agent() as agent:
        await bench.until_done(60)
        await bench.close()
        await asyncio.sleep(0.5)
        await bench.open()
        await bench.until_done(600)
        assert agent.vitals().dropped == 0
    ledger = await bench.ledger()
    assert (ledger.done, ledger.leased) == (600, 0)


@pytest.mark.parametrize("verb", ["finish", "cancel"])
async def test_nothing_of_an_ended_run_stays_with_an_agent(
    bench: Bench, tmp_path: Path, verb: str
) -> None:
    """E7: default placement, so no allocation and no release; the file is gone within ten
    seconds of the end, and no secret was ever on the agent's disk."""
    secret = "TOPSECRET"
    assert bench.api is not None
    settings = {
        "headers": {"Authorization": f"Bearer {secret}"},
        "exits": {"proxies": [f"http://user:{secret}@127.0.0.1:9"]},
    }
    await bench.api.call("PUT", "/api/v1/runs/hush", {"settings": settings}, bytes)
    await bench.api.call("POST", "/requestqueue/hush", [{"uri": f"{bench.site.url}/page/1"}], bytes)
    folder = tmp_path / "agent"
    async with bench.agent() as agent:
        await until(lambda: agent.workspace.remembers("hush"), seconds=20)
        assert secret.encode() not in b"".join(everything_in(folder))
        await bench.api.call("POST", f"/api/v1/runs/hush/{verb}", None, bytes)
        await until(lambda: not list((folder / "runs").iterdir()), seconds=10)


def everything_in(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
