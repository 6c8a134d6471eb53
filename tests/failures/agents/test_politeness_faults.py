"""Agents are frozen, thawed and killed; hosts with a pace must not notice (fault 17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.model.ledger import Ledger
from skep.runtime.clock import SystemClock
from skep.testing.polling import until
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.servers.recording_sites import Recorder, most_in_a_second
from skep.wire.client import CenterClient

HOSTS, EACH = 6, 40
#: At most three starts in a second of each host; a fourth comes after 1.05 s.
DELAY, LIMIT = 0.35, 3
#: The servers share a busy machine and notice some requests late.
NEARLY_A_SECOND = 0.9
FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "4"}


class Answer(msgspec.Struct):
    ledger: Ledger
    unaccounted: int


class World:
    """One center, two agents, and servers that remember."""

    def __init__(self, folder: Path, web: Recorder, stack: ExitStack) -> None:
        self.web = web
        self.center = stack.enter_context(CenterProcess(folder / "center"))
        token = self.center.agent_token
        self.agents = [
            stack.enter_context(AgentProcess(folder / name, [self.center.url], token, FEW_AT_ONCE))
            for name in ("a", "b")
        ]
        self.api = CenterClient(
            [self.center.url], self.center.admin_token, SystemClock(), Random(1)
        )

    async def offer(self) -> None:
        settings = {"block_size": 20, "host_delay": DELAY, "retries": 3}
        await self.api.call("PUT", "/api/v1/runs/r", {"settings": settings}, bytes)
        pairs = [(host, number) for number in range(EACH) for host in self.web.hosts]
        offered = [{"uri": self.web.url(host, f"/{number}")} for host, number in pairs]
        await self.api.call("POST", "/requestqueue/r", offered, bytes)

    async def until_done(self, count: int, seconds: float = 60.0) -> Ledger:

        async def ledger() -> Ledger:
            answer = await self.api.call("GET", "/api/v1/ledger", None, Answer)
            assert answer.unaccounted == 0
            return answer.ledger

        return await until(ledger, lambda found: found.done >= count, seconds=seconds)

    def check_distances(self) -> None:
        for host, times in self.web.starts().items():
            assert most_in_a_second(times, NEARLY_A_SECOND) <= LIMIT, host


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Recorder(HOSTS) as web:
        with ExitStack() as stack:
            world = await asyncio.to_thread(World, tmp_path, web, stack)
            await world.offer()
            yield world
            await world.api.close()
            await asyncio.to_thread(stack.close)


async def test_an_agent_that_wakes_up_late_does_not_ask_beside_its_successor(
    world: World,
) -> None:
    """A frozen agent is taken for dead and its hosts go to the other. When it is thawed it
    still has requests in hand, and must not start one before a center has answered it."""
    await world.until_done(HOSTS * 4)
    for agent in world.agents:
        agent.pause()
        asked = len(world.web.asks)
        await asyncio.sleep(3.0)
        assert len(world.web.asks) > asked, "the other agent goes on"
        agent.resume()
        await asyncio.sleep(1.0)
    ledger = await world.until_done(HOSTS * EACH)
    assert ledger.dead == 0
    world.check_distances()


@pytest.mark.slow
async def test_the_hosts_of_a_killed_agent_are_asked_on_without_a_rush(world: World) -> None:
    await world.until_done(HOSTS * 4)
    for agent in world.agents:
        await asyncio.to_thread(agent.kill)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(agent.start)
        await asyncio.sleep(1.0)
    ledger = await world.until_done(HOSTS * EACH)
    assert ledger.dead == 0
    world.check_distances()
