"""The center is killed with kill -9 and comes back (faults 7, 8, 9, 10, 23)."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from skep.testing.fleet import Fleet, running_agents, tell

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
BEAT = 0.3


async def keep_offering(fleet: Fleet, batches: int, size: int) -> None:
    for _ in range(batches):
        await fleet.offer(size)


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
async def test_the_embedded_center_killed_in_a_loop_loses_nothing(
    tmp_path: Path, kills: int
) -> None:
    """Fault 23: what was acknowledged is there after each kill -9 of center and agent in one
    process, in the middle of submits and of the crawl."""
    rng, requests, ready_after = Random(23), 250 * kills, []
    async with Fleet(tmp_path, latency=0.1, with_agent=True, pages=requests) as fleet:
        offering = asyncio.ensure_future(keep_offering(fleet, requests // 10, 10))
        for number in range(kills):
            if number % 2:  # every other time the agent is at work as well
                done = (await fleet.client.ledger()).done
                await fleet.until_done(min(done + 20, requests))
            await asyncio.sleep(rng.uniform(0.05, 0.3))
            await asyncio.to_thread(fleet.center.kill)
            began = time.monotonic()
            await asyncio.to_thread(fleet.center.start)
            ready_after.append(time.monotonic() - began)
        await offering
        await fleet.until_all_ended(60)
        balance = await fleet.check()
    tell(
        "23",
        kills=kills,
        acknowledged=balance.acknowledged,
        ready_after=max(ready_after),
        client_retries=fleet.client.retries,
        **balance.figures(),
    )
    assert (balance.ledger.done, balance.ledger.accepted) == (requests, requests)
    assert fleet.client.retries > 0


async def test_requests_that_expired_while_the_center_was_away_are_not_done(
    tmp_path: Path,
) -> None:
    """Faults 7, 8: accepted = done + expired, and no agent acts on what is too old."""
    async with Fleet(tmp_path) as fleet:
        await fleet.offer(300, expires_in=2.0)
        await fleet.offer(300)
        offered = time.monotonic()
        await asyncio.to_thread(fleet.center.kill)
        await asyncio.sleep(max(0.0, offered + 2.5 - time.monotonic()))
        await asyncio.to_thread(fleet.center.start)
        await fleet.agent("a", FEW_AT_ONCE)
        ledger = await fleet.until_all_ended()
        asked = [path for path in fleet.site.hits if int(path.rpartition("/")[2]) < 300]
        audit = await fleet.client.ledger(audit=True)
    tell(
        "7/8",
        accepted=ledger.accepted,
        done=ledger.done,
        expired=ledger.expired,
        acted_on_expired=len(asked),
        unaccounted=ledger.unaccounted,
    )
    assert (ledger.done, ledger.expired, asked) == (300, 300, [])
    assert audit == ledger


async def test_agents_come_back_by_themselves_with_one_beat_each(tmp_path: Path) -> None:
    """Faults 9, 10: no heartbeat is queued in an outage; no agent registers as another one."""
    count, outage = 5, 5.0
    async with Fleet(tmp_path) as fleet:
        token = fleet.center.agent_token.read_text().strip()
        async with running_agents(count, [fleet.center.url], token, tmp_path / "agents") as agents:
            await fleet.wait_for(lambda: all(agent.heartbeats.beats > 2 for agent in agents))
            await asyncio.to_thread(fleet.center.kill)
            await asyncio.sleep(outage)
            before = [agent.heartbeats.beats for agent in agents]
            await asyncio.to_thread(fleet.center.start)
            ready, ready_at = time.monotonic(), time.time()
            await fleet.wait_for(
                lambda: all(a.heartbeats.beats > b + 3 for a, b in zip(agents, before, strict=True))
            )
            back = time.monotonic() - ready - 3 * BEAT
            beats = [await fleet.client.heartbeats(agent.id) for agent in agents]
            known = await fleet.client.agents()
    after = [[at for at in times if at > ready_at - 1] for times in beats]
    gaps = [b - a for times in after for a, b in pairwise(times)]
    burst = sum(gap < BEAT / 3 for gap in gaps)
    tell(
        "9/10",
        agents=count,
        outage=outage,
        back_after=back,
        beats_in_a_burst=burst,
        agents_known=len(known),
        closest_beats=min(gaps),
    )
    assert burst == 0
    assert sorted(known) == sorted(agent.id for agent in agents)
    assert all(known.values())
    assert back < BEAT + 1.5  # tries go on at the pace of beats
