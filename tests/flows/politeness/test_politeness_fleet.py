"""Politeness over a fleet: a real center, several real agents, measured at real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.agent.app import Agent
from skep.downloaders.registry import kinds
from skep.model.ledger import Ledger
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.toy_agent import build_agent
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.testing.servers.recording_sites import Ask, Recorder, Reply, most_in_a_second
from skep.wire.client import CenterClient

LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))
FEW = AgentSettings(concurrency=4, report_every=0.1, lease_wait=0.5, drain_seconds=1.0)
ONE, TWO = "127.0.1.1", "127.0.1.2"
#: The servers share their machine with everything else, and notice some requests late.
NEARLY_A_SECOND = 0.9


class Rig:
    """A center, servers, and as many agents as a test asks for."""

    def __init__(self, center: RunningCenter, web: Recorder, folder: Path) -> None:
        self.center = center
        self.web = web
        self._folder = folder
        self._lives: list[tuple[Agent, CenterClient, asyncio.Future[None]]] = []

    def agents(self, count: int) -> list[Agent]:
        """All at work; one that is aborted in the middle does not fail."""
        return [self._begin(number) for number in range(count)]

    def _begin(self, number: int) -> Agent:
        clock, rng = SystemClock(), Random(number)
        client = CenterClient([self.center.url], self.center.local.agent_token, clock, rng)
        folder = self._folder / f"agent{number}"
        agent = build_agent(client, folder, FEW, kinds(clock, rng, LOOPBACK))
        self._lives.append((agent, client, asyncio.ensure_future(agent.run())))
        return agent

    async def close(self) -> None:
        for agent, client, life in self._lives:
            agent.stop()
            (end,) = await asyncio.gather(life, return_exceptions=True)
            assert end is None or isinstance(end, asyncio.CancelledError)
            await client.close()

    async def rule(self, host: str, **rule: Any) -> None:
        answer = await self.center.admin.put(f"/api/v1/sites/{host}", rule)
        assert answer.status == 200, answer.content

    async def site(self, host: str) -> Any:
        return (await self.center.admin.get(f"/api/v1/sites/{host}")).json()

    async def offer(self, host: str, count: int, path: str = "/p") -> None:
        await self.center.put(
            "r", [{"uri": self.web.url(host, f"{path}/{n}")} for n in range(count)]
        )

    async def until(self, enough: Callable[[Ledger], bool], seconds: float = 30.0) -> Ledger:
        ledgers = self.center.services.store.ledgers
        return await until(lambda: ledgers.read("r"), enough, seconds=seconds)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    quick = {
        "center_heartbeat_every": 0.2,
        "center_alive_after": 2.0,
        "center_sweep_every": 0.2,
        "lanes_reconcile_every": 0.5,
        "lanes_retry_first": 0.1,
        "sites_cooling_first": 0.5,
        "sites_window": 1.0,
    }
    async with Recorder(4) as web, running_center(tmp_path / "center", **quick) as center:
        await center.open_run("r", block_size=20, retries=3)
        rig = Rig(center, web, tmp_path)
        try:
            yield rig
        finally:
            await rig.close()
        await center.ledger("r")  # counted twice: the two must agree


async def test_no_host_is_asked_more_often_than_its_rule_by_all_agents_together(rig: Rig) -> None:
    for host in rig.web.hosts:
        await rig.rule(host, rate=5)
        await rig.offer(host, 15)
    rig.agents(3)
    ledger = await rig.until(lambda now: now.done == 60)
    assert (ledger.accepted, ledger.dead) == (60, 0)
    starts = rig.web.starts()
    assert {host: len(times) for host, times in starts.items()} == dict.fromkeys(rig.web.hosts, 15)
    assert max(most_in_a_second(times, NEARLY_A_SECOND) for times in starts.values()) <= 5
    # Hosts are worked on side by side: one after the other would take four times as long.
    span = max(max(times) for times in starts.values()) - min(min(t) for t in starts.values())
    assert span < 4 * 15 / 5 * 0.75


async def test_the_concurrency_of_a_host_holds_over_all_agents(rig: Rig) -> None:
    rig.web.answer = lambda _: Reply(wait=0.05)
    await rig.rule(ONE, concurrency=2)
    await rig.offer(ONE, 60)
    rig.agents(3)
    await rig.until(lambda now: now.done == 60)
    assert rig.web.most[ONE] <= 2


async def test_a_slow_host_delays_no_other_host(rig: Rig) -> None:
    """Hosts with and without a rule in one run; the one at 1 per 2 s is first in line."""
    await rig.rule(ONE, rate=0.5)
    await rig.offer(ONE, 500)
    await rig.offer(TWO, 200)
    rig.agents(2)
    await rig.until(lambda now: now.done >= 200)
    assert len(rig.web.starts(TWO)[TWO]) == 200
    assert len(rig.web.starts(ONE)[ONE]) < 10


async def test_a_host_that_refuses_is_left_alone_and_comes_again(rig: Rig) -> None:
    """429 with Retry-After: nothing is sent meanwhile, no other request is counted as
    failed, and afterwards everything is done."""
    began: list[float] = []

    def answer(ask: Ask) -> Reply:
        began.append(ask.at)
        return Reply(status=429, headers={"Retry-After": "2"}) if len(began) == 1 else Reply()

    rig.web.answer = answer
    await rig.rule(ONE, rate=50, concurrency=1)
    await rig.offer(ONE, 12)
    rig.agents(2)
    await rig.until(lambda now: now.delayed == 12)
    seen = await rig.site(ONE)
    assert (seen["reason"], seen["strikes"], seen["refused"]) == ("429", 1, 1)
    ledger = await rig.until(lambda now: now.done == 12)
    assert (ledger.dead, len(began)) == (0, 13)
    assert began[1] - began[0] > 1.5
    seen = await rig.site(ONE)
    assert (seen["strikes"], seen["failed"], seen["requests"]) == (0, 1, 13)


async def test_what_robots_txt_forbids_is_dead_and_says_so(rig: Rig) -> None:
    robots = Reply(b"User-agent: *\nDisallow: /private\n")
    rig.web.answer = lambda ask: robots if ask.path == "/robots.txt" else Reply()
    await rig.rule(ONE, rate=50, robots=True)
    await rig.offer(ONE, 3, "/private")
    await rig.offer(ONE, 3, "/public")
    rig.agents(2)
    ledger = await rig.until(lambda now: now.done + now.dead == 6)
    assert (ledger.done, ledger.dead) == (3, 3)
    assert not [path for path in rig.web.paths() if path.startswith("/private")]
    seen = await rig.site(ONE)
    assert (seen["barred"], seen["requests"]) == (3, 6)


async def test_a_host_that_is_gone_is_probed_one_request_at_a_time(rig: Rig) -> None:
    """The breaker: after five failures in a row the rest is put off; each probe that fails
    as well doubles the rest. When the host answers again everything is done."""
    well: list[bool] = []
    rig.web.answer = lambda _: Reply() if well else None
    await rig.rule(ONE, rate=50, concurrency=1)
    await rig.center.open_run("r", block_size=20, retries=100)
    await rig.offer(ONE, 20)
    rig.agents(2)
    await until(lambda: rig.site(ONE), lambda site: site["strikes"] >= 2, seconds=20)
    asked = len(rig.web.asks)
    assert asked <= 10
    well.append(True)
    ledger = await rig.until(lambda now: now.done == 20)
    assert ledger.dead == 0
    assert (await rig.site(ONE))["strikes"] == 0


async def test_an_agent_that_dies_leaves_its_hosts_to_others_without_a_rush(rig: Rig) -> None:
    """It ends without a message. Its hosts come to another agent, and the servers cannot tell:
    the distance is kept across the two."""
    for host in rig.web.hosts:
        await rig.rule(host, rate=5)
        await rig.offer(host, 30)
    agents = rig.agents(2)
    await rig.until(lambda now: now.done >= 20)
    # Between two blocks no request waits: take a moment at which the agent has some.
    await until(lambda: any(agent.holding.gate.waiting for agent in agents), step=0.001)
    busiest = max(agents, key=lambda agent: agent.holding.gate.waiting)
    busiest.abort()
    ledger = await rig.until(lambda now: now.done == 120)
    assert ledger.dead == 0
    for times in rig.web.starts().values():
        assert most_in_a_second(times, NEARLY_A_SECOND) <= 5


async def test_hosts_without_a_rule_are_counted(rig: Rig) -> None:
    await rig.offer(ONE, 40)
    rig.agents(1)
    await rig.until(lambda now: now.done == 40)
    seen = await rig.site(ONE)
    assert (seen["requests"], seen["failed"], seen["pace"]) == (40, 0, None)
    assert seen["latency"] > 0.005
