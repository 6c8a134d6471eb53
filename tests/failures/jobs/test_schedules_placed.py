"""Schedules of placed jobs, and clocks that were wrong, with real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.runtime.clock import SystemClock
from skep.testing.polling import until
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.skew import SkewedClock
from skep.wire.client import CenterClient

#: libfaketime makes a center slow.
SECONDS = 90.0


async def fires_of(center: CenterProcess) -> list[dict[str, Any]]:
    async with CenterClient([center.url], center.admin_token, SystemClock(), Random(1)) as client:
        path = "/api/v1/jobs/tick/fires?limit=100"
        found: list[dict[str, Any]] = (await client.call("GET", path, None, dict, seconds=SECONDS))[
            "items"
        ]
        return found


async def applied(center: CenterProcess, **job: Any) -> None:
    async with CenterClient([center.url], center.admin_token, SystemClock(), Random(1)) as client:
        await client.call(
            "PUT", "/api/v1/jobs/tick", {"requests": ["http://a/"], **job}, dict, seconds=SECONDS
        )


async def until_fired(center: CenterProcess, count: int) -> list[dict[str, Any]]:
    """At least `count` fires that have a run."""
    return await until(
        lambda: fires_of(center),
        lambda fires: sum(bool(fire["run"]) for fire in fires) >= count,
        seconds=SECONDS,
        step=0.2,
    )


async def test_due_times_of_placed_jobs_outlive_a_restart(tmp_path: Path) -> None:
    """E3: no due time is skipped because the agent was silent while the center was away, also
    where runs do not wait for agents otherwise."""
    center = CenterProcess(tmp_path / "center", {"SKEP_CENTER_ALLOCATE_WAIT": "0"})
    await asyncio.to_thread(center.start)
    agent = AgentProcess(tmp_path / "agent", [center.url], center.agent_token)
    try:
        await asyncio.to_thread(agent.start)
        schedule = {"every": 1, "overlap": "parallel", "catch_up": "one"}
        await applied(center, placement={"strategy": "fixed", "n": 1}, schedule=schedule)
        before = len(await until_fired(center, 2))
        await asyncio.to_thread(center.kill)
        await asyncio.sleep(4.0)  # twice the time after which an agent counts as dead
        await asyncio.to_thread(center.start)
        fires = await until_fired(center, before + 3)
        assert not [fire for fire in fires if fire["state"] == "skipped"], fires
    finally:
        await asyncio.to_thread(agent.close)
        await asyncio.to_thread(center.close)


@pytest.mark.slow
@pytest.mark.usefixtures("libfaketime")
async def test_a_clock_that_was_a_day_ahead_for_a_while(tmp_path: Path) -> None:
    """R8: the center's clock is a day ahead for 30 s and is put right: schedules go on, and an
    alert says so."""
    clock = SkewedClock(tmp_path / "clock")
    center = CenterProcess(tmp_path / "center", clock.env)
    await asyncio.to_thread(center.start)
    try:
        await applied(center, schedule={"every": 2, "overlap": "parallel"})
        await until_fired(center, 2)
        clock.set(86_400)
        await asyncio.sleep(30)
        clock.set(0)
        known = sum(bool(fire["run"]) for fire in await fires_of(center))
        await until_fired(center, known + 3)
        async with CenterClient(
            [center.url], center.admin_token, SystemClock(), Random(1)
        ) as client:
            alerts = (await client.call("GET", "/api/v1/alerts", None, dict))["items"]
        assert "clock_set_back" in {alert["kind"] for alert in alerts}
    finally:
        await asyncio.to_thread(center.close)
