"""Centers that die over application jobs; kill -9, real processes, agents by hand (A8, C9)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skep.testing.doubles.app_agent import ManualAppAgent
from skep.testing.grounds.centers import Caller
from skep.testing.polling import until
from skep.testing.processes import CenterProcess, running_centers
from skep.wire.messages import AppLog, AppLogReply

SECONDS = 60.0
JOBS = {"SKEP_JOBS_KEEP_EVERY": "0.1", "SKEP_JOBS_LEASE_SECONDS": "1"}
DOCUMENT = {"name": "app", "app": {"image": "example.org/app:1", "lost_seconds": 600}}


@asynccontextmanager
async def ground(
    folder: Path, env: Mapping[str, str], count: int
) -> AsyncIterator[tuple[list[CenterProcess], aiohttp.ClientSession]]:
    async with (
        running_centers(folder, {**JOBS, **env}, count) as centers,
        aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["Content-Type"]) as session,
    ):
        yield centers, session


def admin(center: CenterProcess, session: aiohttp.ClientSession) -> Caller:
    return Caller(session, center.url, center.admin_token)


def hand(center: CenterProcess, session: aiohttp.ClientSession) -> ManualAppAgent:
    return ManualAppAgent(Caller(session, center.url, center.agent_token.read_text().strip()), "a1")


async def started(caller: Caller) -> str:
    assert (await caller.put("/api/v1/jobs/app", DOCUMENT)).status == 200
    run: str = (await caller.post("/api/v1/jobs/app/run")).json()["run"]
    return run


async def instance(caller: Caller, run: str, fits: Callable[[Any], bool]) -> Any:
    """The run's only instance, as soon as it is like that."""
    answer = await until(
        lambda: caller.get(f"/api/v1/runs/{run}/instances"),
        lambda answer: (items := answer.json()["items"]) and fits(items[0]["instance"]),
        seconds=SECONDS,
    )
    return answer.json()["items"][0]["instance"]


async def test_a_center_that_dies_between_placing_and_telling(tmp_path: Path) -> None:
    """The agent has nothing and so asks nothing: the next holder of the run must tell it."""
    async with ground(tmp_path, {}, 1) as ((center,), session):
        a1 = hand(center, session)
        await a1.start(listens=False)
        caller = admin(center, session)
        run = await started(caller)
        placed = await instance(caller, run, lambda one: one["agent"] == "a1")
        assert placed["state"] == "waiting"
        os.kill(center.pid, signal.SIGKILL)
        await asyncio.to_thread(center.wait)
        await asyncio.to_thread(center.start)
        again = hand(center, session)
        await again.start()
        running = await instance(caller, run, lambda one: one["state"] == "running")
        assert (running["agent"], running["token"], running["starts"]) == ("a1", 1, 1)
        assert "apps" in again.commands
        await a1.die()
        await again.die()


@pytest.mark.slow
async def test_another_center_goes_on_where_one_died(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """C9: the instance runs on, a piece of log that was sent to both is kept once, and a
    pause reaches the agent through the center that is left."""
    async with ground(tmp_path, shared, 2) as ((first, second), session):
        a1 = hand(second, session)
        await a1.start()
        run = await started(admin(first, session))
        left = admin(second, session)
        await instance(left, run, lambda one: one["state"] == "running")
        piece = AppLog("a1", run, 0, 1, 0, b"once\n")
        there = hand(first, session)
        assert (await there.call("app-log", piece)).read(AppLogReply).next == 5
        os.kill(first.pid, signal.SIGKILL)
        await asyncio.to_thread(first.wait)
        assert (await a1.call("app-log", piece)).read(AppLogReply).next == 5
        log = (await left.get(f"/api/v1/runs/{run}/instances/0/log")).json()
        assert log["text"] == "once\n"
        assert (await left.post("/api/v1/jobs/app/pause")).status == 200
        paused = await instance(left, run, lambda one: one["state"] == "paused")
        assert (paused["token"], paused["starts"]) == (1, 1)
        assert (await left.post("/api/v1/jobs/app/stop")).status == 200
        await instance(left, run, lambda one: one["state"] == "stopped")
        await a1.die()
