"""Two centers over PostgreSQL and Redis; one of them is always dying (fault 15)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.testing.fleet import Fleet, tell
from skep.testing.servers import Postgres

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}


async def keep_offering(fleet: Fleet, batches: int, size: int) -> None:
    for _ in range(batches):
        await fleet.offer(size)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.slow)])
async def test_one_of_two_centers_dies_again_and_again(
    tmp_path: Path, postgres_server: Postgres, redis_url: str, kills: int
) -> None:
    """Fault 15: kill -9 each in turn under load; no call fails that was tried at both."""
    env = {
        "SKEP_STORE_URL": postgres_server.fresh_database(),
        "SKEP_BUS_URL": redis_url,
        "SKEP_ARCHIVE_URL": str(tmp_path / "archive"),
    }
    async with Fleet(tmp_path, env, latency=0.02) as fleet:
        centers = [fleet.center, await fleet.another_center("second")]
        await fleet.reach(*centers)
        urls = [center.url for center in centers]
        await fleet.agent("a", FEW_AT_ONCE, urls)
        await fleet.agent("b", FEW_AT_ONCE, urls[::-1])
        offering = asyncio.create_task(keep_offering(fleet, 100, 20))
        for number in range(kills):
            await fleet.until_done(2000 * number // (kills + 2))
            victim = centers[number % 2]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
        await offering
        await fleet.until_all_ended(60)
        balance = await fleet.check()
        agents = await fleet.client.agents()
        client = fleet.client
    tell(
        "15",
        kills=kills,
        failed_calls=client.retries,
        longest_call=client.longest,
        agents=len(agents),
        **balance.figures(),
    )
    assert client.retries == 0
    assert (balance.ledger.accepted, balance.ledger.done) == (2000, 2000)
    assert len(agents) == 2
