"""Registrations that come again, late, or all at once (fault 10)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.testing.faultproxy import TO_CALLER, FaultProxy
from skep.testing.fleet import Fleet, tell
from skep.testing.processes import AgentProcess

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
REGISTER = b"POST /node/register"


async def works(fleet: Fleet, agent: AgentProcess, requests: int) -> None:
    """It is one agent, it is the one that runs, and it does the work."""
    await fleet.offer(requests)
    await fleet.until_all_ended()
    assert await fleet.client.agents() == {agent.id: True}
    assert agent.running
    fenced = ("runs elsewhere", "newer process")
    assert not any(text in line for line in agent.said() for text in fenced)


async def test_a_registration_whose_answer_is_lost_is_one_agent(tmp_path: Path) -> None:
    """Fault 10: the center got it three times without an answer; the fourth is answered."""
    async with Fleet(tmp_path) as fleet, FaultProxy(fleet.center.port) as proxy:
        proxy.cut(TO_CALLER, when=REGISTER, times=3)
        agent = await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        await works(fleet, agent, 40)
        balance = await fleet.check()
    tell("10", answers_lost=proxy.struck, agents=1, **balance.figures())
    assert proxy.struck == 3


@pytest.mark.slow
async def test_registrations_that_were_held_arrive_at_once(tmp_path: Path) -> None:
    """Fault 10: a silent line swallows every try; then all of them arrive, the oldest first.
    What is late is as good as what is not, and none of them fences the others out."""
    async with Fleet(tmp_path) as fleet, FaultProxy(fleet.center.port) as proxy:
        proxy.hold_calls(REGISTER)
        agent = fleet.new_agent("a", FEW_AT_ONCE, [proxy.url])
        starting = asyncio.ensure_future(asyncio.to_thread(agent.start))
        await fleet.wait_for(lambda: proxy.struck >= 1)
        await asyncio.sleep(25)  # a start waits for 30 s
        held = proxy.struck
        proxy.heal()
        await starting
        await works(fleet, agent, 40)
        balance = await fleet.check()
    tell("10", tries_held=held, agents=1, **balance.figures())
    assert held >= 2
