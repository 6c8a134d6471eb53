"""Agents are killed with kill -9 under load; the ledger has the last word (faults 17, 18, 22)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from skep.testing.fleet import Fleet, tell

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
#: What a busy machine may add to any time that is measured here.
SLACK = 1.5


async def kill_in_turn(fleet: Fleet, requests: int, kills: int) -> int:
    """Kill one agent after the other as the work goes on; what was held then, in requests."""
    held = 0
    rising: dict[int, asyncio.Future[None]] = {}
    for number in range(1, kills + 1):
        await fleet.until_done(requests * number // (kills + 2))
        which = number % len(fleet.agents)
        if which in rising:
            await rising.pop(which)
        await asyncio.to_thread(fleet.agents[which].kill)
        held += (await fleet.client.ledger()).leased
        rising[which] = asyncio.ensure_future(asyncio.to_thread(fleet.agents[which].start))
    await asyncio.gather(*rising.values())
    return held


@pytest.mark.parametrize(
    ("kills", "requests"), [(5, 1000), pytest.param(50, 10_000, marks=pytest.mark.slow)]
)
async def test_agents_killed_in_a_loop_lose_nothing(
    tmp_path: Path, kills: int, requests: int
) -> None:
    """Fault 22: peers lose 10 of 500 up to 534 of 600 in the same test."""
    async with Fleet(tmp_path, latency=0.05, pages=requests) as fleet:
        await asyncio.gather(fleet.agent("a", FEW_AT_ONCE), fleet.agent("b", FEW_AT_ONCE))
        await fleet.offer(requests)
        held = await kill_in_turn(fleet, requests, kills)
        ledger = await fleet.until_all_ended(60)
        balance = await fleet.check()
        agents = await fleet.client.agents()
    tell("22", kills=kills, requests=requests, held=held, **balance.figures())
    assert (ledger.done, ledger.dead) == (requests, 0)
    assert balance.repeated <= held
    assert len(agents) == 2


async def test_the_work_of_a_dead_agent_goes_to_others_in_time(tmp_path: Path) -> None:
    """Fault 17: after the kill of 1 of 3 nothing is leased to it, and what it held is free
    within `alive_after` and one sweep, long before its leases would run out."""
    env = {"SKEP_LANES_LEASE_SECONDS": "60"}
    async with Fleet(tmp_path, env, latency=0.1, block_size=10) as fleet:
        names = ("a", "b", "c")
        agents = await asyncio.gather(*(fleet.agent(name, FEW_AT_ONCE) for name in names))
        victim = agents[0]
        await fleet.offer(500)
        await fleet.until_done(60)
        await asyncio.to_thread(victim.kill)
        killed = time.monotonic()
        held = fleet.blocks_of(victim)
        await fleet.wait_for(lambda: fleet.blocks_of(victim) == 0)
        freed = time.monotonic() - killed
        alive = await fleet.client.agents()
        await fleet.until_all_ended()
        assert fleet.blocks_of(victim) == 0
        balance = await fleet.check()
    tell("17", blocks_held=held, free_after=freed, **balance.figures())
    assert held > 0
    assert freed <= 2 + 0.2 + SLACK
    assert [alive[agent.id] for agent in agents] == [False, True, True]
    assert balance.ledger.done == 500


async def test_a_killed_agent_comes_back_as_itself_and_its_blocks_are_free_at_once(
    tmp_path: Path,
) -> None:
    """Fault 18: no lease and no liveness has to run out first; torn files do not stop it."""
    env = {"SKEP_LANES_LEASE_SECONDS": "60", "SKEP_CENTER_ALIVE_AFTER": "60"}
    async with Fleet(tmp_path, env, latency=0.1) as fleet:
        agent = await fleet.agent("a", FEW_AT_ONCE)
        name = agent.id
        await fleet.offer(300)
        await fleet.until_done(20)
        await asyncio.to_thread(agent.kill)
        held = fleet.blocks_of(agent)
        torn = [*(agent.folder / "agent" / "runs").glob("*.run")]
        for file in torn:
            file.write_bytes(file.read_bytes()[:7])
        (agent.folder / "agent" / "outbox" / "000000000001.report").write_bytes(b"SKO1torn")
        began = time.monotonic()
        await asyncio.to_thread(agent.start)
        took = time.monotonic() - began
        await fleet.until_all_ended()
        balance = await fleet.check()
        agents = await fleet.client.agents()
    tell("18", blocks_held=held, back_after=took, torn=len(torn) + 1, **balance.figures())
    assert held > 0
    assert torn
    assert any("workspace: ignored" in line for line in agent.said())
    assert list(agents) == [agent.id] == [name]
    assert balance.ledger.done == 300
