"""The center is killed with kill -9 and comes back (faults 7, 8, 9, 10, 23)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

from skep.testing.fleet import Fleet, tell

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
BEAT = 0.3


async def keep_offering(fleet: Fleet, batches: int, size: int) -> None:
    for _ in range(batches):
        await fleet.offer(size)


async def test_the_embedded_center_killed_in_a_loop_loses_nothing(tmp_path: Path) -> None:
    """Fault 23: what was acknowledged is there after each kill -9 of center and agent in one
    process, in the middle of submits and of the crawl."""
    kills, rng, ready_after = 8, Random(23), []
    async with Fleet(tmp_path, latency=0.02, with_agent=True) as fleet:
        offering = asyncio.ensure_future(keep_offering(fleet, 100, 20))
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0.05, 0.4))
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
    assert (balance.ledger.done, balance.ledger.accepted) == (2000, 2000)
    assert fleet.client.retries > 0


async def test_requests_that_expired_while_the_center_was_away_are_not_done(
    tmp_path: Path,
) -> None:
    """Faults 7, 8: accepted = done + expired, and nobody acts on what is too old."""
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
