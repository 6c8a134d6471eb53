"""Orders given at one center to an agent that hangs on the other (R2, fault 15). PostgreSQL and
Redis; whether an order is obeyed is seen at the site: downloads end or begin. The bar is 2 s."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.runtime.clock import SystemClock
from skep.testing.cluster import Cluster
from skep.testing.fleet import running_agents, tell
from skep.testing.grounds.centers import two_centers
from skep.testing.polling import until
from skep.testing.processes import AgentProcess
from skep.testing.site import DemoSite
from skep.wire.client import CenterClient

RUN = "web"
#: Two downloads at a time, each this long: hits come close together.
SETTINGS = {"block_size": 20, "host_concurrency": 2}
LATENCY = 0.04
#: Pages for each order; not all of them are asked for.
PAGES = 400
LOOK = 0.01
#: So long without a hit, and the downloads have ended.
QUIET = 1.2
PATIENCE = 30.0
#: The first of each pair ends the downloads, the second lets them begin again.
PAIRS = ("drain", "enable", "pause", "continue")


class Orders:
    """Gives orders at one center, and looks at the site for what became of them."""

    def __init__(
        self, client: CenterClient, site: DemoSite, agent: str, ended: Callable[[], Awaitable[Any]]
    ) -> None:
        """`ended` returns when the agent is no more."""
        self._client = client
        self._site = site
        self._agent = agent
        self._ended = ended
        #: Seconds from each order to what it was to bring about.
        self.took: list[tuple[str, float]] = []

    async def give_all(self, count: int) -> None:
        """Alternately; the last one is the end of the agent."""
        await self._downloads_begin()
        for name in (*islice(cycle(PAIRS), count - 1), "exit"):
            await self._give(name)

    async def _give(self, name: str) -> None:
        began = time.monotonic()
        kind, whose = ("runs", RUN) if name in {"pause", "continue"} else ("agents", self._agent)
        await self._client.call("POST", f"/api/v1/{kind}/{whose}/{name}", None, dict)
        if name in {"continue", "enable"}:
            await self._downloads_begin()
            self.took.append((name, time.monotonic() - began))
        elif name == "exit":
            await self._ended()
            self.took.append((name, time.monotonic() - began))
        else:
            self.took.append((name, await self._downloads_end() - began))

    async def _downloads_begin(self) -> None:
        before = self._site.hits.total()
        await until(lambda: self._site.hits.total() != before, seconds=PATIENCE, step=LOOK)

    async def _downloads_end(self) -> float:
        """The moment of the last one."""
        last, count = time.monotonic(), self._site.hits.total()
        async with asyncio.timeout(PATIENCE):
            while time.monotonic() - last < QUIET:
                await asyncio.sleep(LOOK)
                if self._site.hits.total() != count:
                    last, count = time.monotonic(), self._site.hits.total()
        return last


async def judge(
    url: str, token: str, agent: str, ended: Callable[[], Awaitable[Any]], orders: int
) -> None:
    """Work for the agent, and that many orders at the center with this address."""
    async with (
        DemoSite(PAGES * orders, LATENCY) as site,
        CenterClient([url], token, SystemClock(), Random(1)) as center,
    ):
        await center.call("PUT", f"/api/v1/runs/{RUN}", {"settings": SETTINGS}, dict)
        await center.call("POST", f"/requestqueue/{RUN}", site.page_urls(), bytes)
        given = Orders(center, site, agent, ended)
        await given.give_all(orders)
        left = PAGES * orders - len(site.hits)
        ledger = await center.call("GET", "/api/v1/ledger?audit=true", None, dict)
    slowest, longest = max(given.took, key=lambda one: one[1])
    median = statistics.median(seconds for _, seconds in given.took)
    tell("15", orders=len(given.took), longest_order=longest, slowest=slowest, median_order=median)
    assert left > 0, "there was work to do all the time"
    assert ledger["unaccounted"] == 0
    assert median < 2
    assert longest < 10, given.took


async def test_five_orders_at_the_other_center_are_obeyed(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """Fault 15, R2: drain, enable, pause, continue, exit. Beats are a minute apart, so that none
    of them carries an order."""
    flags = {"center_heartbeat_every": 60.0, "center_alive_after": 200.0}
    async with two_centers(tmp_path, shared, **flags) as (one, two):
        token = (one.folder / "agent.token").read_text().strip()
        async with running_agents(1, [one.url], token, tmp_path / "agent") as (agent,):
            await judge(two.url, two.admin.token, agent.id, agent._ended.wait, 5)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # pytest's own folders are closed to other users, and the database has a user of its own.
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), agents=0) as running:
        yield running


@pytest.mark.slow
async def test_orders_in_a_cluster_of_processes(cluster: Cluster) -> None:
    """Fault 15, R2: `skep cluster dev` as it is shipped; drain, enable, pause and continue
    alternately, and exit, 21 commands. The agent knows the first center only."""
    first, second = cluster.centers
    agent = AgentProcess(cluster.folder / "agent", [first.url], first.agent_token)
    agent.env = first.env
    with agent:

        async def ended() -> int:
            return await asyncio.to_thread(agent.wait, PATIENCE)

        await judge(second.url, first.admin_token, agent.id, ended, 21)
