"""Agents at a real center, played by hand: beats, long polls, commands and what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skep.model.block import Leased
from skep.model.fleet.agent import Vitals
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.queued_runs import fill, urls
from skep.testing.polling import until
from skep.wire.messages import Command, LeaseAsk


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Retries come soon, the rest is as shipped."""
    async with running_center(tmp_path, lanes_retry_first=0.01, lanes_retry_cap=0.02) as running:
        yield running


async def test_a_beat_tells_what_was_lost(center: RunningCenter) -> None:
    """Fault 30: an agent learns which blocks are no longer its own, and keeps the others."""
    await fill(center, "r", 20, block_size=10)
    agent, other = center.hand_agent("a1"), center.hand_agent("a2")
    await agent.register()
    await other.register()
    mine, lost = await agent.lease(want=2)
    await agent.give_back(lost)
    await other.lease()
    reply = await agent.heartbeat()
    assert reply.lost == [lost.id]
    agent.held = {77: Leased(77, 1, "r", 1, b""), mine.id: mine}
    assert (await agent.heartbeat()).lost == [77]


async def test_a_beat_can_bring_blocks(center: RunningCenter) -> None:
    """C8: the answer to a heartbeat carries blocks, if asked."""
    await fill(center, "r", 30, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    assert (await agent.heartbeat()).lease is None
    reply = await agent.heartbeat(want=2)
    assert [block.size for block in reply.lease.blocks] == [10, 10]
    assert set(reply.lease.runs) == {"r"}
    assert (await center.ledger("r")).leased == 20


async def test_a_disabled_agent_keeps_its_beat_and_gets_nothing(center: RunningCenter) -> None:
    """C3: switched off by a person; what it holds it may finish."""
    await fill(center, "r", 20, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    line = (await center.admin.post("/api/v1/agents/a1/disable")).json()
    assert line["agent"]["enabled"] is False
    answer = await agent.call("lease", LeaseAsk("a1"))
    assert (answer.status, answer.problem().code) == (403, "forbidden")
    reply = await agent.heartbeat(want=1)
    assert (reply.known, reply.lease, reply.lost) == (True, None, [])
    assert (await center.admin.get("/api/v1/agents")).json()["items"][0]["alive"] is True
    assert await agent.finish(block) == "stored"
    await agent.register()
    assert (await agent.heartbeat(want=1)).lease is None, "a new registration does not switch it on"
    await center.admin.post("/api/v1/agents/a1/enable")
    assert len(await agent.lease()) == 1


async def test_an_agent_that_is_disabled_while_it_waits_gets_nothing(
    center: RunningCenter,
) -> None:
    """C3: the long poll looks again before it hands out."""
    agent = center.hand_agent()
    await agent.register()
    waiting = asyncio.create_task(agent.lease(wait=20.0))
    await until_waiting(center)
    await center.admin.post("/api/v1/agents/a1/disable")
    await fill(center, "r", 1)
    assert await waiting == []
    assert (await center.ledger("r")).queued == 1


async def until_waiting(center: RunningCenter) -> None:
    """An agent waits for work."""

    async def there() -> bool:
        return center.services.signals.work.waiting > 0

    await until(there)


async def test_an_old_heartbeat_does_not_count_and_renews_nothing(center: RunningCenter) -> None:
    """C10: what waited is judged by its age; a registration is always processed."""
    await fill(center, "r", 1)
    agent = center.hand_agent()
    await agent.register(age=3600.0)
    (block,) = await agent.lease()
    seen, until_ = await seen_at(center), await lease_until(center, block)
    reply = await agent.heartbeat(age=11.0, want=1)
    assert (reply.known, reply.lease) == (True, None)
    assert (await seen_at(center), await lease_until(center, block)) == (seen, until_)
    await agent.heartbeat(age=10.9)
    assert await seen_at(center) > seen
    assert await lease_until(center, block) > until_
    before = await seen_at(center)
    await agent.register([block.held], age=86_400.0)
    assert await seen_at(center) > before


async def seen_at(center: RunningCenter) -> float:
    items = (await center.admin.get("/api/v1/agents")).json()["items"]
    return float(items[0]["agent"]["seen_at"])


async def lease_until(center: RunningCenter, block: Leased) -> float:
    found = (await center.admin.get(f"/api/v1/blocks/{block.id}")).json()
    return float(found["block"]["lease_until"])


async def test_heartbeats_are_kept_for_charts(center: RunningCenter) -> None:
    """C2: the history of an agent, oldest first."""
    agent = center.hand_agent()
    await agent.register()
    for rate in (1.0, 2.0, 3.0):
        await agent.heartbeat(vitals=Vitals(rate=rate, free_memory=2**40))
    found = (await center.admin.get("/api/v1/agents/a1/vitals?seconds=60")).json()["items"]
    assert [vitals["rate"] for _, vitals in found] == [1.0, 2.0, 3.0]
    assert [at for at, _ in found] == sorted(at for at, _ in found)


async def test_a_long_poll_returns_with_the_work(center: RunningCenter) -> None:
    """C8: at once when work arrives, long before its time is over."""
    await center.open_run("r")
    agent = center.hand_agent()
    await agent.register()
    waiting = asyncio.create_task(agent.lease(wait=30.0))
    await until_waiting(center)
    await center.put("r", urls(5))
    async with asyncio.timeout(15.0):
        (block,) = await waiting
    assert block.size == 5


async def test_a_long_poll_returns_with_nothing_when_its_time_is_over(
    center: RunningCenter,
) -> None:
    agent = center.hand_agent()
    await agent.register()
    clock = asyncio.get_running_loop().time
    begun = clock()
    assert await agent.lease(wait=0.3) == []
    assert clock() - begun >= 0.29


async def test_a_caller_that_hung_up_takes_no_block(center: RunningCenter) -> None:
    """Fault 22: blocks do not rest in the hands of a connection that is gone."""
    await center.open_run("r")
    agent = center.hand_agent()
    await agent.register()
    waiting = asyncio.create_task(agent.lease(wait=30.0))
    await until_waiting(center)
    server = center.local.server._server
    assert server is not None
    state = server.server_state
    connected = set(state.connections)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async def heard_the_end() -> bool:
        return not connected <= set(state.connections)

    async def answered_all() -> bool:
        return not state.tasks

    await until(heard_the_end)
    await center.put("r", urls(1))
    await center.dispatched()
    await until(answered_all)
    assert (await center.ledger("r")).queued == 1
    assert len(await agent.lease()) == 1


async def test_commands_arrive_over_the_socket(center: RunningCenter) -> None:
    """A2, C8: pushed at once; an order is told again with each beat until it is obeyed."""
    agent = center.hand_agent()
    await agent.register()
    async with center.agent.socket("a1") as socket:
        for verb in ("wake", "exit"):
            await center.admin.post(f"/api/v1/agents/a1/{verb}")
            data = await asyncio.wait_for(socket.receive_bytes(), 10)
            assert msgspec.msgpack.decode(data, type=Command).name == verb
        (order,) = (await agent.heartbeat()).commands
        assert order.name == "exit"
        assert (await agent.heartbeat(obeyed=order.order)).commands == []


async def test_commands_rest_until_the_next_beat(center: RunningCenter) -> None:
    """A2: without a socket they are told in order; `wake` once, an order until obeyed."""
    agent = center.hand_agent()
    await agent.register()
    await center.admin.post("/api/v1/agents/a1/wake")
    await center.admin.post("/api/v1/agents/a1/exit")
    assert [command.name for command in (await agent.heartbeat()).commands] == ["wake", "exit"]
    (order,) = (await agent.heartbeat()).commands
    assert order.name == "exit"
    assert (await agent.heartbeat(obeyed=order.order)).commands == []


async def test_a_socket_that_was_closed_is_forgotten(center: RunningCenter) -> None:
    """Fault 28: a command after it rests, and reaches the agent with its beat."""
    agent = center.hand_agent()
    await agent.register()
    async with center.agent.socket("a1"):
        assert center.services.hub.connected == ["a1"]

    async def forgotten() -> bool:
        return center.services.hub.connected == []

    await until(forgotten)
    assert (await center.admin.post("/api/v1/agents/a1/wake")).status == 200
    assert [command.name for command in (await agent.heartbeat()).commands] == ["wake"]


async def test_a_second_socket_takes_the_place_of_the_first(center: RunningCenter) -> None:
    """Fault 66: one agent, one socket; the end of the old one does not unhook the new."""
    agent = center.hand_agent()
    await agent.register()
    old = await center.agent.socket("a1")
    async with center.agent.socket("a1") as new:
        await old.close()
        await center.admin.post("/api/v1/agents/a1/wake")
        data = await asyncio.wait_for(new.receive_bytes(), 10)
        assert msgspec.msgpack.decode(data, type=Command).name == "wake"
        assert center.services.hub.connected == ["a1"]


async def test_an_agent_that_comes_back_empty_handed_frees_its_blocks(
    center: RunningCenter,
) -> None:
    """Fault 22: after a kill no agent waits for a lease to run out."""
    await fill(center, "r", 20, block_size=10)
    agent, other = center.hand_agent("a1"), center.hand_agent("a2")
    await agent.register()
    await other.register()
    kept, gone = await agent.lease(want=2)
    await agent.register([kept.held])
    assert (await center.ledger("r")).leased == 10
    (found,) = await other.lease(want=2)
    assert (found.id, found.token) == (gone.id, gone.token + 1)
    await agent.register()
    (found,) = await other.lease(want=2)
    assert found.id == kept.id
    assert await agent.finish(kept) == "stale"
