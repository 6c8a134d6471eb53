"""The processes of failure tests: centers, agents, a site, a client.

The client writes every acknowledged URL to its own synced file. At the end `check` compares that
file with the store and with the hits of the site: no acknowledged URL may be missing, however many
processes were killed in between.

    async with Fleet(folder) as fleet:
        agent = await fleet.agent("a")
        await fleet.offer(1000)
        agent.kill()
        ...
        tell("22", **(await fleet.check()).figures())
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Self

import msgspec
import sqlalchemy as sa

from skep.agent.app import Agent
from skep.agent.launch import LaunchedAgent
from skep.lanes.dispatch import LANES
from skep.model.ledger import Ledger
from skep.model.states import BlockState
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import attempts
from skep.testing.doubles.persistent_client import Acknowledged, Client
from skep.testing.grounds.isolation import code_setting
from skep.testing.polling import until
from skep.testing.processes import QUICK, AgentProcess, CenterProcess
from skep.testing.site import DemoSite
from skep.testing.site_pages import Pages

STEP = 0.03
#: Bodies that a check reads.
SAMPLE = 20


class Balance(msgspec.Struct, frozen=True):
    """The records of the client, the store and the site compared."""

    acknowledged: int
    #: Acknowledged and not ended in the store.
    lost: int
    #: Ended twice in the store.
    doubled: int
    #: Finished successfully in the store, and never requested from the site.
    unseen: int
    #: Requested from the site more than once: work that was repeated because of a fault.
    repeated: int
    #: Bodies of a sample that differ from the archive.
    damaged: int
    ledger: Ledger

    def figures(self) -> dict[str, int]:
        return {"lost": self.lost, "doubled": self.doubled, "repeated": self.repeated}


class Fleet:
    """One center, one site, one client, and any number of agents."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str] | None = None,
        *,
        pages: int = 5000,
        latency: float = 0.0,
        block_size: int = 20,
        with_agent: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`settings` are those of the client's run."""
        self.folder = folder
        self.center = CenterProcess(folder / "center", env, with_agent=with_agent)
        self.site = DemoSite(pages, latency)
        self.agents: list[AgentProcess] = []
        usual = {"block_size": block_size, "host_concurrency": 64}
        self._settings = {**usual, **(settings or {})}
        self._offered = 0
        self._stack = ExitStack()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None, "start the fleet first"
        return self._client

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        await self.site.start()
        self._stack.callback(self.center.kill)
        await asyncio.to_thread(self.center.start)
        self._client = self.new_client([self.center.url])
        await self.client.open_run(**self._settings)

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.api.close()
        await asyncio.to_thread(self._stack.close)
        await self.site.stop()

    async def another_center(self, name: str) -> CenterProcess:
        """Start another center on the same store, bus and archive; `env` must name them."""
        center = CenterProcess(self.folder / name, self.center.env)
        self._stack.callback(center.kill)
        await asyncio.to_thread(center.start)
        return center

    async def reach(self, *centers: CenterProcess) -> None:
        """The fleet's client uses all these centers from now on."""
        await self.client.api.close()
        self._client = self.new_client([center.url for center in centers])

    def new_client(self, urls: Sequence[str]) -> Client:
        """Another client of the same center; close its `api` yourself."""
        known = Acknowledged(self.folder / "acknowledged")
        return Client(urls, self.center.admin_token, known)

    def new_agent(
        self, name: str, env: Mapping[str, str] | None = None, centers: Sequence[str] = ()
    ) -> AgentProcess:
        """Not started yet; stopped with the fleet."""
        urls = centers or [self.center.url]
        agent = AgentProcess(self.folder / name, urls, self.center.agent_token, env)
        self._stack.callback(agent.kill)
        self.agents.append(agent)
        return agent

    async def agent(
        self, name: str, env: Mapping[str, str] | None = None, centers: Sequence[str] = ()
    ) -> AgentProcess:
        """Started, and registered at the center."""
        agent = self.new_agent(name, env, centers)
        await asyncio.to_thread(agent.start)
        return agent

    def urls(self, count: int) -> list[str]:
        """Pages of the site that were not used before."""
        first, self._offered = self._offered, self._offered + count
        assert self._offered <= self.site.pages, "the site has too few pages for this test"
        return [f"{self.site.url}/page/{number}" for number in range(first, first + count)]

    async def offer(self, count: int, **more: object) -> None:
        await self.client.offer(self.urls(count), **more)

    async def until(self, condition: Callable[[Ledger], bool], seconds: float = 30.0) -> Ledger:
        """Poll the ledger, which must add up each time; raises AssertionError after the timeout."""
        return await until(self.client.ledger, condition, seconds=seconds, step=STEP)

    async def wait_for(
        self, condition: Callable[[], bool | Awaitable[bool]], seconds: float = 30.0
    ) -> None:
        """Poll a condition; raises AssertionError after the timeout."""
        await until(condition, seconds=seconds, step=STEP)

    def blocks_of(self, agent: AgentProcess) -> int:
        """Blocks that are leased to this agent according to the store."""
        using = sa.and_(blocks.c.agent == agent.id, blocks.c.state == BlockState.USING)
        return _count(self.center.store_url, sa.select(blocks.c.id).where(using))

    async def until_done(self, count: int, seconds: float = 30.0) -> Ledger:
        return await self.until(lambda ledger: ledger.done >= count, seconds)

    async def until_all_ended(self, seconds: float = 30.0) -> Ledger:
        return await self.until(lambda ledger: ledger.accepted > 0 and not ledger.open, seconds)

    async def check(self) -> Balance:
        """Compare client, store and site; all requests must have ended.

        Raises AssertionError if a request was lost, or was stored twice.
        """
        audit = await self.client.ledger(audit=True)
        assert audit == await self.client.ledger(), "the running counts and the rows differ"
        acknowledged = set(self.client.acknowledged.urls())
        ended = await self.client.ended()
        times = Counter(one.uri for one in ended)
        done = {one.uri: one.id for one in ended if one.state == "done"}
        hits = {f"{self.site.url}{path}": count for path, count in self.site.hits.items()}
        rows = await asyncio.to_thread(doubled_rows, self.center.store_url)
        balance = Balance(
            acknowledged=len(acknowledged),
            lost=len(acknowledged - times.keys()),
            doubled=rows + sum(count - 1 for count in times.values()),
            unseen=sum(1 for uri in done if not hits.get(uri)),
            repeated=sum(hits.values()) - len(hits),
            damaged=await self._damaged(dict(sorted(done.items())[:: max(1, len(done) // SAMPLE)])),
            ledger=audit,
        )
        wrong = (balance.lost, balance.doubled, balance.unseen, balance.damaged)
        assert wrong == (0, 0, 0, 0), balance
        assert not (repaired := await self.repaired()), repaired
        return balance

    async def repaired(self) -> dict[str, str]:
        """Repairs of the center's self-check, by kind. Without the lanes: a center that is killed
        during a lease takes entries with it."""
        answer = await self.client.api.call("GET", "/api/v1/repairs", None, dict)
        lines = [line for line in answer["items"] if line["repaired"]]
        return {line["kind"]: line["last"] for line in lines if line["kind"] != LANES}

    async def _damaged(self, sample: Mapping[str, int]) -> int:
        """How many of these differ between the archive and the site."""
        pages = Pages(self.site.pages, seed=1)
        damaged = 0
        for uri, number in sample.items():
            path = f"/api/v1/requests/{number}/body"
            body = await self.client.api.call("GET", path, None, bytes)
            damaged += body != pages.page(int(uri.rpartition("/")[2])).encode()
        return damaged


@asynccontextmanager
async def running_agents(
    count: int, urls: Sequence[str], token: str, folder: Path
) -> AsyncIterator[list[Agent]]:
    """Many light agents on this event loop, each with its own folder and random generator."""
    settings = load(environment=QUICK, flags={"agent.code": code_setting()})
    clock = SystemClock()
    launched = [
        LaunchedAgent(settings, urls, token, folder / str(number), {}, clock, Random(number))  # noqa: S311
        for number in range(count)
    ]
    tasks = [asyncio.create_task(one.agent.run()) for one in launched]
    try:
        yield [one.agent for one in launched]
    finally:
        for one in launched:
            one.agent.stop()
        await asyncio.gather(*tasks)
        await asyncio.gather(*(one.close() for one in launched))


def tell(fault: str, **figures: object) -> None:
    """Print one line with the figures of a failure test."""
    told = (
        f"{name}={value:.2f}" if isinstance(value, float) else f"{name}={value}"
        for name, value in figures.items()
    )
    sys.stdout.write(f"FAULT {fault}: {' '.join(told)}\n")


def doubled_rows(store_url: str) -> int:
    """Requests that were done more than once according to the store."""
    done = sa.select(attempts.c.request).where(attempts.c.failure == "")
    often = done.group_by(attempts.c.request).having(sa.func.count() > 1)
    return _count(store_url, often)


def _count(store_url: str, query: sa.Select[tuple[int]]) -> int:
    """A count of rows, read without the center."""
    engine = sa.create_engine(store_url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.connect() as connection:
            counted = sa.select(sa.func.count()).select_from(query.subquery())
            return int(connection.execute(counted).scalar_one())
    finally:
        engine.dispose()
