"""Two centers race for hosts with a rate limit: no host is ever leased twice."""

from __future__ import annotations

import asyncio
from random import Random

from skep.model.block import BlockReport, Leased
from skep.model.hosts.host import SiteNote
from skep.model.ledger import Ledger
from skep.store.ports import Store
from skep.store.ports.blocks import RetryRule, Settlement
from skep.store.ports.requests import PackPlan
from skep.testing.conformance.store.ground import NOW, ledger, new_run
from skep.testing.conformance.store.hosts import OWN, POLITENESS, on
from skep.testing.conformance.store.reports import done, ids, works

HOSTS = [f"host{number}.example" for number in range(6)]
EACH = 25


class HostRacePromises:
    async def test_two_centers_share_hosts(self, store: Store, other_store: Store) -> None:
        """politeness: whatever happens concurrently, a host is leased to one agent, all requests
        end, and every outcome is counted once."""
        for run in ("one", "two"):
            await new_run(store, run)
            for host in (*HOSTS, OWN):
                await store.requests.accept(run, on(host, EACH), NOW)
        race = _Race((store, other_store))
        async with asyncio.timeout(55):
            await asyncio.gather(*(race.work(number) for number in range(6)))
        total = EACH * (len(HOSTS) + 1)
        for run in ("one", "two"):
            assert await ledger(store, run) == Ledger(accepted=total, done=total)
        for host in (*HOSTS, OWN):
            seen = await store.hosts.get(host)
            assert (seen.requests, seen.block) == (2 * EACH, None), host


class _Race:
    """Workers on two centers, until everything has ended."""

    def __init__(self, centers: tuple[Store, Store]) -> None:
        self._centers = centers
        #: host -> the leased block that holds it.
        self._in_hand: dict[str, int] = {}
        self._turn = 0

    async def work(self, number: int) -> None:
        rng = Random(number)  # noqa: S311 - the same race every time, as far as it goes
        store, agent = self._centers[number % 2], f"agent-{number}"
        while (await store.ledgers.read()).open:
            self._turn += 1
            now = NOW + self._turn
            await store.requests.wake(now, 50)
            await store.hosts.wake(now, POLITENESS, 50)
            plans = [PackPlan(run, 5, 60, 12) for run in rng.sample(("one", "two"), 2)]
            await store.requests.pack(plans, now, POLITENESS)
            ready = [ref.id for ref in await store.blocks.claimable(40)]
            some = rng.sample(ready, min(len(ready), 3))
            for block in await store.blocks.lease(some, agent, now, now + 10**6, POLITENESS):
                await self._do(rng, block, agent, now)

    async def _do(self, rng: Random, block: Leased, agent: str, now: float) -> None:
        left = [work for work in works(block) if work.id not in block.skip]
        hosts = {_host(work.uri): work for work in left}
        for host in hosts.keys() - {OWN}:
            assert self._in_hand.setdefault(host, block.id) == block.id, host
        if rng.random() < 0.2:
            await self._centers[1].blocks.give_back([block.held], agent, now, "race")
            return
        for host in hosts:
            self._in_hand.pop(host, None)
        numbers = set(ids(block)) - set(block.skip)
        notes = [
            SiteNote(host, sum(_host(work.uri) == host for work in left), left=True)
            for host in hosts
        ]
        report = BlockReport(block.id, block.token, done(numbers), True, b"", notes)
        item = Settlement(report, agent, RetryRule({}))
        center = rng.choice(self._centers)
        both = await asyncio.gather(
            center.blocks.settle([item], now, POLITENESS),
            center.blocks.settle([item], now, POLITENESS),
        )
        assert sorted(one.verdict for found in both for one in found) == ["duplicate", "stored"]


def _host(uri: str) -> str:
    return uri.split("/")[3].rpartition("-")[0]
