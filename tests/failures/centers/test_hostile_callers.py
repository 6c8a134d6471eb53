"""Callers without a token that try to stop a center: heartbeats of agents go on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import aiohttp
import psutil
import pytest

from skep.testing.fleet import tell
from skep.testing.grounds.centers import Caller, HandAgent
from skep.testing.processes import CenterProcess

BEATS_EVERY = 0.5
MOST_SECONDS, MOST_BYTES = 0.5, 64 * 2**20


async def beat(agent: HandAgent, until: float, took: list[float]) -> None:
    """As often as the fleet of a small center would."""
    while perf_counter() < until:
        began = perf_counter()
        await agent.heartbeat()
        took.append(perf_counter() - began)
        await asyncio.sleep(max(0.0, BEATS_EVERY - took[-1]))


async def most_memory(process: psutil.Process, until: float) -> int:
    """The largest resident size that was seen: what is freed again counts too."""
    most = 0
    while perf_counter() < until:
        most = max(most, process.memory_info().rss)
        await asyncio.sleep(0.1)
    return most


async def under_attack(
    center: CenterProcess, seconds: float, hostile: int, healthy: int
) -> dict[str, float]:
    """Heartbeats and memory while that many connections do their worst."""
    process = psutil.Process(center.pid)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        caller = Caller(session, center.url, center.agent_token.read_text().strip())
        agents = [HandAgent(caller, f"a{n}") for n in range(healthy)]
        for agent in agents:
            await agent.register()
            await agent.heartbeat()
        before = process.memory_info().rss
        attack = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "skep.testing.faults.hostile_callers",
                f"127.0.0.1:{center.port}",
            ),
            *("--seconds", str(seconds), "--connections", str(hostile)),
            stdout=asyncio.subprocess.PIPE,
        )
        took: list[float] = []
        until = perf_counter() + seconds
        watch = asyncio.create_task(most_memory(process, until))
        await asyncio.gather(*(beat(agent, until, took) for agent in agents))
        grown = await watch - before
        output, _ = await attack.communicate()
    ended = sum(json.loads(output).values())
    assert ended >= hostile / 4, "every endless header was ended at least once"
    p99 = quantiles(took, n=100)[98]
    return {"beats": len(took), "p99": p99, "longest": max(took), "grown": grown, "ended": ended}


async def attacked(folder: Path, seconds: float, hostile: int, healthy: int) -> None:
    with CenterProcess(folder / "center") as center:
        figures = await under_attack(center, seconds, hostile, healthy)
    tell("75", seconds=seconds, **{name: round(value, 3) for name, value in figures.items()})
    assert figures["p99"] < MOST_SECONDS
    assert figures["grown"] < MOST_BYTES


async def test_heartbeats_go_on_while_callers_are_hostile(tmp_path: Path) -> None:
    """S3, fault 75: the short version, for a machine that runs other tests too."""
    await attacked(tmp_path, 5.0, hostile=40, healthy=20)


@pytest.mark.slow
async def test_heartbeats_go_on_for_half_a_minute(tmp_path: Path) -> None:
    """S3, fault 75: 200 hostile connections for 30 seconds, and 50 agents."""
    await attacked(tmp_path, 30.0, hostile=200, healthy=50)
