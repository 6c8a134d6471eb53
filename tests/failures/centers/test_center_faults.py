"""Redis and PostgreSQL die and return under a working center (faults 26, 27)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.testing import servers
from skep.testing.fleet import Fleet, tell

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}


@pytest.fixture
def redis() -> Iterator[servers.Redis]:
    with servers.redis() as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[servers.Postgres]:
    with servers.postgres(durable=True) as server:
        yield server


async def until_ready(fleet: Fleet, wanted: bool) -> float:
    """Seconds until /readyz says so."""
    began = time.monotonic()

    async def says() -> bool:
        return await asyncio.to_thread(fleet.center.ready) is wanted

    await fleet.wait_for(says, 20)
    return time.monotonic() - began


async def break_and_restore(
    fleet: Fleet, server: servers.Server, away: float
) -> tuple[float, float]:
    """Kill a server for a while; seconds until red, and until green again."""
    await asyncio.to_thread(server.kill)
    red = await until_ready(fleet, wanted=False)
    await asyncio.sleep(away)
    await asyncio.to_thread(server.start)
    return red, await until_ready(fleet, wanted=True)


async def test_redis_is_killed_and_flushed_under_load(tmp_path: Path, redis: servers.Redis) -> None:
    """Faults 26, 27: lanes are rebuilt from the store, and nothing is lost."""
    kills, flushes = 2, 5
    env = {"SKEP_BUS_URL": redis.url}
    async with Fleet(tmp_path, env, latency=0.05) as fleet:
        await fleet.agent("a", FEW_AT_ONCE)
        await fleet.offer(1500)
        times = []
        for number in range(kills):
            await fleet.until_done(150 * (number + 1))
            times.append(await break_and_restore(fleet, redis, 1.0))
        for number in range(flushes):
            await fleet.until_done(500 + 100 * number)
            await asyncio.to_thread(redis.execute, "FLUSHALL")
        flushed = time.monotonic()
        done = (await fleet.client.ledger()).done
        await fleet.until_done(done + 100)
        rebuilt = time.monotonic() - flushed
        await fleet.until_all_ended()
        balance = await fleet.check()
    red, green = (max(column) for column in zip(*times, strict=True))
    tell(
        "26/27",
        kills=kills,
        flushes=flushes,
        red_after=red,
        green_after=green,
        going_on_after=rebuilt,
        **balance.figures(),
    )
    assert balance.ledger.done == 1500
    assert fleet.center.starts == 1


async def test_postgres_is_killed_under_load(tmp_path: Path, postgres: servers.Postgres) -> None:
    """Fault 26: the center waits for its database, and goes on with it."""
    kills = 2
    env = {"SKEP_STORE_URL": postgres.fresh_database()}
    async with Fleet(tmp_path, env, latency=0.05) as fleet:
        await fleet.agent("a", FEW_AT_ONCE)
        times = []
        for number in range(kills):
            await fleet.offer(400)
            await fleet.until_done(100 + 300 * number)
            offering = asyncio.create_task(fleet.offer(100))
            times.append(await break_and_restore(fleet, postgres, 1.0))
            await offering
        await fleet.until_all_ended()
        balance = await fleet.check()
        agents = await fleet.client.agents()
    red, green = (max(column) for column in zip(*times, strict=True))
    tell(
        "26 sql",
        kills=kills,
        red_after=red,
        green_after=green,
        agents=len(agents),
        **balance.figures(),
    )
    assert balance.ledger.done == kills * 500
    assert fleet.center.starts == 1
