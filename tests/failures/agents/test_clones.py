"""Copies of an agent's folder, and what people want of agents, over several centers
(faults 18, 65, 66). Real processes; what is sold as done is asked of every center."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from skep.model.fleet.agent import Registration
from skep.testing.fleet import Fleet, tell
from skep.testing.grounds.centers import Caller, RunningCenter, two_centers
from skep.testing.polling import until
from skep.testing.processes import AgentProcess
from skep.wire.messages import Heartbeat, Join, LeaseAsk, Register

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "8"}
FENCED = 5


async def test_a_copied_folder_fences_the_older_one_out(tmp_path: Path) -> None:
    """Fault 66: under load; the older one ends with a reason and stays out, no work is lost."""
    async with Fleet(tmp_path, latency=0.05) as fleet:
        original = await fleet.agent("a", FEW_AT_ONCE)
        await fleet.offer(400)
        await fleet.until_done(50)
        shutil.copytree(original.folder, tmp_path / "copy")
        copy = AgentProcess(tmp_path / "copy", original.centers, fleet.center.agent_token)
        copy.env.update(FEW_AT_ONCE)
        with copy:
            began = time.monotonic()
            await asyncio.to_thread(copy.start)
            code = await asyncio.to_thread(original.wait, 20.0)
            fenced_after = time.monotonic() - began
            said = "\n".join(original.said())
            await asyncio.to_thread(run_to_its_end, original)
            again = "\n".join(original.said())
            await fleet.until_all_ended(60)
            balance = await fleet.check()
            agents = await fleet.client.agents()
            assert await asyncio.to_thread(copy.terminate) == 0
    tell(
        "66",
        fenced_after=fenced_after,
        exit_code=code,
        agents=len(agents),
        **balance.figures(),
    )
    assert code == FENCED
    assert "runs elsewhere as session 2" in said
    assert "older copy" in again
    assert len(agents) == 1
    assert balance.ledger.done == 400


def run_to_its_end(agent: AgentProcess) -> None:
    """Start a process that is refused: it is never ready."""
    with pytest.raises(Exception, match="older copy"):
        agent.start()


async def test_a_killed_agent_is_itself_again_at_once(tmp_path: Path) -> None:
    """Faults 18, 66: kill -9 and start, ten times; it is never taken for a copy."""
    kills = 10
    async with Fleet(tmp_path) as fleet:
        agent = await fleet.agent("a", FEW_AT_ONCE)
        for number in range(kills):
            await fleet.offer(20)
            await fleet.until_done(20 * number + 1)
            await asyncio.to_thread(agent.kill)
            await asyncio.to_thread(agent.start)
        await fleet.until_all_ended(60)
        agents = await fleet.client.agents()
        balance = await fleet.check()
    tell("18/66", kills=kills, starts=agent.starts, **balance.figures())
    assert balance.ledger.done == 20 * kills
    assert (agent.starts, len(agents)) == (kills + 1, 1)


@pytest.fixture
async def centers(tmp_path: Path, shared: dict[str, str]) -> AsyncIterator[list[RunningCenter]]:
    """Two of them over one store and one bus."""
    async with two_centers(tmp_path, shared) as both:
        yield list(both)


def at(center: RunningCenter, token: str) -> Caller:
    return Caller(center._session, center.url, token)


async def until_refused(caller: Caller, began: float) -> float:
    await until(
        lambda: caller.packed("/node/heartbeat", Heartbeat("a1")),
        lambda answer: answer.status == 401,
        seconds=began + 10 - time.monotonic(),
    )
    return time.monotonic() - began


async def test_a_one_time_token_at_two_centers(centers: list[RunningCenter]) -> None:
    """Fault 65: twenty machines with one token, ten at each center, at the same moment."""
    token = (await centers[0].admin.post("/api/v1/join-tokens", {})).json()["token"]
    calls = [
        at(center, token).packed("/node/join", Join(f"a{n}{i}", sha256(b"%d%d" % (n, i)).digest()))
        for n in range(10)
        for i, center in enumerate(centers)
    ]
    statuses = sorted([answer.status for answer in await asyncio.gather(*calls)])
    tell("65", tries=20, joined=statuses.count(200), replays_accepted=statuses.count(200) - 1)
    assert statuses == [200] + [409] * 19


async def test_a_revoked_agent_is_out_at_every_center(centers: list[RunningCenter]) -> None:
    """Fault 65: the other center has its token in memory; 5 s all the same."""
    here, there = centers
    token = (await here.admin.post("/api/v1/join-tokens", {})).json()["token"]
    mine = Join("a1", sha256(b"secret").digest())
    assert (await at(here, token).packed("/node/join", mine)).status == 200
    callers = [at(center, "secret") for center in centers]
    for caller in callers:
        about = Register(Registration("a1", "one"))
        assert (await caller.packed("/node/register", about)).status == 200
    waiting = asyncio.create_task(callers[1].packed("/node/lease", LeaseAsk("a1", wait=8.0)))
    async with callers[1].socket("a1") as socket:
        began = time.monotonic()
        assert (await here.admin.post("/api/v1/agents/a1/revoke")).status == 200
        seconds = [await until_refused(caller, began) for caller in callers]
        await asyncio.wait_for(socket.receive(), 5)
        seconds.append(time.monotonic() - began)
    assert (await waiting).status in {200, 401, 403}
    tell("65", revoked_after=max(seconds), centers=len(centers))
    assert max(seconds) < 5
    assert (await there.ledger()).leased == 0


async def test_an_order_reaches_an_agent_at_any_center(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """C9, A2: given at one center while the agent is at the other, or frozen, or restarting."""
    async with Fleet(tmp_path, shared) as fleet:
        second = await fleet.another_center("second")
        agent = await fleet.agent("a", FEW_AT_ONCE, [second.url])
        agent.pause()
        await fleet.client.command(agent.id, "drain")
        began = time.monotonic()
        agent.resume()
        await fleet.wait_for(lambda: obeyed(fleet, agent.id, "drain"))
        drained = time.monotonic() - began
        await fleet.client.command(agent.id, "restart")
        await fleet.wait_for(lambda: obeyed(fleet, agent.id, "restart"))
        await fleet.wait_for(lambda: in_session(fleet, agent.id, 2))
        await fleet.client.command(agent.id, "enable")
        await fleet.offer(20)
        await fleet.until_all_ended()
        await fleet.client.command(agent.id, "exit")
        code = await asyncio.to_thread(agent.wait, 20.0)
        await fleet.wait_for(lambda: obeyed(fleet, agent.id, "exit"))
        balance = await fleet.check()
    tell("A2", orders=3, obeyed_after=drained, **balance.figures())
    assert code == 0
    assert balance.ledger.done == 20


async def shown(fleet: Fleet, agent: str) -> dict[str, Any]:
    answer: dict[str, Any] = await fleet.client.api.call(
        "GET", f"/api/v1/agents/{agent}", None, dict
    )
    return answer


async def obeyed(fleet: Fleet, agent: str, verb: str) -> bool:
    orders = (await shown(fleet, agent))["orders"]
    return any(order["name"] == verb and order["outcome"] for order in orders)


async def in_session(fleet: Fleet, agent: str, number: int) -> bool:
    return bool((await shown(fleet, agent))["agent"]["session"] == number)
