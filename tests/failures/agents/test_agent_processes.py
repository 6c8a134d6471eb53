"""Agents that are frozen or told to stop under load (faults 4, 6, 30, 47)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from skep.testing.faultproxy import FaultProxy
from skep.testing.fleet import Fleet, tell
from skep.testing.processes import AgentProcess

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
REPORTS = b"POST /node/block"


async def freeze_until_others_did_it(
    fleet: Fleet, proxy: FaultProxy, frozen: AgentProcess, other: AgentProcess
) -> float:
    """The agent stops in the middle of its work, with a report on its way; the other does
    the work; then the report arrives and the agent wakes. Returns the time to detection."""
    await fleet.client.allow(other.id, enabled=False)
    struck = proxy.struck
    proxy.hold_calls(REPORTS)
    await fleet.offer(60)
    await fleet.wait_for(lambda: proxy.struck > struck)
    frozen.pause()
    began = time.monotonic()
    await fleet.client.allow(other.id, enabled=True)
    await fleet.wait_for(lambda: fleet.blocks_of(frozen) == 0)
    detected = time.monotonic() - began
    await fleet.until_all_ended()
    stale = await fleet.client.metric("skep_fenced_writes_total")
    proxy.heal()
    await fleet.wait_for(lambda: fleet.client.metric_above("skep_fenced_writes_total", stale))
    frozen.resume()
    await fleet.wait_for(lambda: fleet.client.is_alive(frozen.id))
    return detected


async def test_a_frozen_agent_changes_nothing_when_it_wakes(tmp_path: Path) -> None:
    """Faults 4, 6, 30: stopped beyond its lease, its late results are refused and counted."""
    pauses = 3
    async with Fleet(tmp_path, latency=0.1) as fleet, FaultProxy(fleet.center.port) as proxy:
        frozen = await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        other = await fleet.agent("b", FEW_AT_ONCE)
        detected = [
            await freeze_until_others_did_it(fleet, proxy, frozen, other) for _ in range(pauses)
        ]
        fenced = await fleet.client.metric("skep_fenced_writes_total")
        balance = await fleet.check()
        await fleet.client.allow(other.id, enabled=False)
        await fleet.offer(20)  # it still works after all that
        await fleet.until_all_ended()
    tell(
        "4/6/30",
        pauses=pauses,
        detected_after=max(detected),
        fenced=int(fenced),
        stale_accepted=balance.doubled,
        **balance.figures(),
    )
    assert fenced >= pauses
    assert balance.ledger.done == 60 * pauses
    assert max(detected) < 4 + 2


async def test_sigterm_under_load_orphans_nothing(tmp_path: Path) -> None:
    """Fault 47: six stops; after each nothing is leased, and the exit code is 0."""
    stops, longest = 6, 0.0
    async with Fleet(tmp_path, {"SKEP_LANES_LEASE_SECONDS": "60"}, latency=0.1) as fleet:
        agents = [fleet.new_agent(name, FEW_AT_ONCE) for name in ("a", "b")]
        await fleet.offer(900)
        rising = asyncio.ensure_future(asyncio.to_thread(agents[0].start))
        for number in range(stops):
            await rising
            agent, other = agents[number % 2], agents[(number + 1) % 2]
            await fleet.until_done((await fleet.client.ledger()).done + 20)
            began = time.monotonic()
            code = await asyncio.to_thread(agent.terminate)
            longest = max(longest, time.monotonic() - began)
            assert (code, (await fleet.client.ledger()).leased) == (0, 0)
            rising = asyncio.ensure_future(asyncio.to_thread(other.start))
        await rising
        await fleet.until_all_ended()
        balance = await fleet.check()
    tell("47", stops=stops, orphaned=0, longest=longest, **balance.figures())
    assert longest < 2 + 2 + 5
    assert balance.ledger.done == 900
