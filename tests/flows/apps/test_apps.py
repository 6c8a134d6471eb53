"""Application jobs from the job's document to the processes: real center, real agents (A8)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.runtime.clock import SystemClock
from skep.testing.fleet import Fleet, running_agents
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.wire.client import CenterClient

pytestmark = pytest.mark.needs("bwrap")

SECONDS = 60.0
#: Says who it is, goes on until it is asked to end, and ends with 0 or as it was told.
SERVE = """
import os, signal, sys, time

def end(*_):
    print("ends", flush=True)
    sys.exit(int(os.environ.get("CODE", "0")))

signal.signal(signal.SIGTERM, end)
print("serves", sys.argv[1:], os.environ["GREETING"], flush=True)
number = 0
while "once" not in sys.argv:
    number += 1
    print("tick", number, flush=True)
    time.sleep(0.1)
sys.exit(int(os.environ.get("CODE", "0")))
"""


class World:
    """What a test asks of a center, in process or not."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        return await self._call(method, f"/api/v1/{path}", body)

    async def started(self, n: int, *words: str, **app: Any) -> str:
        part = {
            "package": "serve",
            "command": ["python3", "serve.py", *words],
            "environment": {"GREETING": "hello", **app.pop("environment", {})},
            **app,
        }
        job = {"name": "serve", "app": part, "placement": {"strategy": "fixed", "n": n}}
        await self.ask("PUT", "jobs/serve", job)
        run: str = (await self.ask("POST", "jobs/serve/run"))["run"]
        return run

    async def until_agents(self, count: int) -> None:
        await until(
            lambda: self.ask("GET", "agents"),
            lambda found: len(found["items"]) >= count,
            seconds=SECONDS,
        )

    async def until_run(self, run: str, reason: str) -> None:
        await until(
            lambda: self.ask("GET", f"runs/{run}"),
            lambda found: reason in found["run"]["reason"],
            seconds=SECONDS,
        )

    async def instances(self, run: str) -> list[Any]:
        found = await self.ask("GET", f"runs/{run}/instances")
        return [line["instance"] for line in found["items"]]

    async def until(self, run: str, *states: str) -> list[Any]:
        """The instances, when they are in these states."""
        return await until(
            lambda: self.instances(run),
            lambda found: [one["state"] for one in found] == list(states),
            seconds=SECONDS,
            what=f"instances {states}",
        )

    async def log(self, run: str, no: int) -> str:
        text: str = (await self.ask("GET", f"runs/{run}/instances/{no}/log"))["text"]
        return text

    async def until_log(self, run: str, no: int, words: str, times: int = 1) -> str:
        return await until(
            lambda: self.log(run, no),
            lambda text: text.count(words) >= times,
            seconds=SECONDS,
            what=f"{times} x {words!r}",
        )


def make_package(folder: Path) -> Path:
    (folder / "serve").mkdir(parents=True)
    (folder / "serve" / "serve.py").write_text(SERVE)
    return folder


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    flags = {"jobs_keep_every": 0.05, "center_heartbeat_every": 0.2}
    folder = make_package(tmp_path / "jobs")
    async with running_center(tmp_path / "data", jobs_folder=str(folder), **flags) as running:
        yield running


async def test_an_application_on_two_agents(center: RunningCenter, tmp_path: Path) -> None:
    """A8: it runs on both, its logs arrive, it is paused, restarted and stopped; exit codes
    come back."""
    client = CenterClient([center.url], center.admin.token, SystemClock(), Random(1))
    token, place = center.agent.token, tmp_path / "agents"
    async with client, running_agents(2, [center.url], token, place) as agents:
        world = World(lambda method, path, body: client.call(method, path, body, dict))
        await world.until_agents(2)
        run = await world.started(2, "a b")
        found = await world.until(run, "running", "running")
        assert {one["agent"] for one in found} == {agent.id for agent in agents}
        for no in (0, 1):
            assert "serves ['a b'] hello\n" in await world.until_log(run, no, "tick 3\n")
        wanted = f"logs?filter=source:app+run:{run}+serves"
        lines = await until(
            lambda: world.ask("GET", wanted), lambda found: len(found["lines"]) == 2
        )
        assert {line["source"] for line in lines["lines"]} == {f"{run}/0", f"{run}/1"}
        await world.ask("POST", "jobs/serve/pause")
        await world.until(run, "paused", "paused")
        await world.ask("POST", "jobs/serve/resume")
        found = await world.until(run, "running", "running")
        assert [one["starts"] for one in found] == [1, 1]
        await world.ask("POST", f"runs/{run}/instances/0/restart")
        await world.until_log(run, 0, "serves", times=2)
        await world.until(run, "running", "running")
        await world.ask("POST", "jobs/serve/stop")
        ended = await world.until(run, "stopped", "stopped")
        assert [(one["starts"], one["exit_code"]) for one in ended] == [(2, 0), (1, 0)]
        assert (await world.log(run, 1)).endswith("ends\n")
        done = await world.started(1, "once")
        assert (await world.until(done, "done"))[0]["exit_code"] == 0
        assert await world.log(done, 0) == "serves ['once'] hello\n"
        bad = await world.started(1, "once", restart="never", environment={"CODE": "3"})
        (failed,) = await world.until(bad, "failed")
        assert (failed["exit_code"], failed["reason"]) == (3, "exit code 3")
        await world.until_run(bad, "failed with exit code 3")


async def test_instances_outlive_a_killed_center_and_come_back_with_a_killed_agent(
    tmp_path: Path,
) -> None:
    """A8, A4: kill -9 of the center: the processes go on, and nothing of their logs is lost.
    kill -9 of the agent: they end with it and start again with it, under the same token."""
    env = {"SKEP_JOBS_FOLDER": str(make_package(tmp_path / "jobs")), "SKEP_JOBS_KEEP_EVERY": "0.1"}
    async with Fleet(tmp_path, env, pages=1) as fleet:

        async def call(method: str, path: str, body: Any) -> Any:
            return await fleet.client.insist(
                lambda: fleet.client.api.call(method, path, body, dict)
            )

        world = World(call)
        agent = await fleet.agent("a")
        run = await world.started(1)
        await world.until(run, "running")
        await world.until_log(run, 0, "tick 2\n")
        await asyncio.to_thread(fleet.center.kill)
        room = agent.folder / "agent" / "apps" / "instances"
        await fleet.wait_for(lambda: any(p.stat().st_size for p in room.glob("*/log/*")))
        await asyncio.to_thread(fleet.center.start)
        before = (await world.until_log(run, 0, "tick")).count("\n")
        text = await world.until_log(run, 0, f"tick {before + 5}\n")
        numbers = [int(line.split()[1]) for line in text.splitlines() if line.startswith("tick")]
        assert numbers == list(range(1, len(numbers) + 1))
        (one,) = await world.until(run, "running")
        assert (one["starts"], one["token"]) == (1, 1)
        os.kill(agent.pid, signal.SIGKILL)
        await asyncio.to_thread(agent.wait)
        await asyncio.to_thread(agent.start)
        await world.until_log(run, 0, "serves", times=2)
        (one,) = await world.until(run, "running")
        assert (one["starts"], one["token"]) == (2, 1)
        assert agent.terminate() == 0
