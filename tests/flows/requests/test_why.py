"""Why-not-running over the API and the command line: a real center, agents, children (R5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.cli.main import run as command_line
from skep.model.block import BlockReport
from skep.model.hosts.host import SiteNote
from skep.model.request import Outcome
from skep.settings import AgentSettings
from skep.testing.doubles.toy_agent import ToyKind, running_agent
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.grounds.jobs import until_found
from skep.wire.messages import Report

SLOW = "slow.example"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data", lanes_low_limit=20) as running:
        yield running


async def why(center: RunningCenter, kind: str, name: object) -> Any:
    return (await center.admin.get(f"/api/v1/why/{kind}/{name}")).json()


def codes(answer: Any) -> list[str]:
    return [reason["code"] for reason in answer["reasons"]]


async def test_no_agent_then_a_disabled_one_then_a_full_lane(
    center: RunningCenter,
) -> None:
    """R5: no agent, all disabled, lane full, paused: one after the other, as they change."""
    await center.open_run("web", block_size=10)
    await center.put("web", [f"http://127.0.0.1/{n}" for n in range(50)])
    await center.dispatched()
    found = await why(center, "runs", "web")
    assert (found["waiting"], codes(found)) == (True, ["no_agent", "lane_full", "in_lane"])
    await center.hand_agent().register()
    assert (await center.admin.post("/api/v1/agents/a1/disable")).status == 200
    found = await why(center, "requests", 50)
    assert (found["state"], codes(found)[0]) == ("waiting", "agents_disabled")
    assert found["reasons"][0]["do"] == ["skep agents enable a1"]
    assert (await center.admin.post("/api/v1/agents/a1/enable")).status == 200
    found = await why(center, "requests", 50)
    assert found["reasons"][0]["text"] == "lane low is full: 20/20"
    assert found["reasons"][0]["facts"] == {"lane": "low", "requests": 20, "limit": 20}
    assert found["reasons"][1]["facts"]["before"] == 29
    assert codes(await why(center, "requests", 1)) == ["in_lane"]
    await center.admin.post("/api/v1/runs/web/pause")
    for kind, name in (("runs", "web"), ("requests", 1), ("requests", 50), ("blocks", 1)):
        assert codes(await why(center, kind, name))[0] == "run_paused"
    await center.admin.post("/api/v1/runs/web/cancel")
    found = await why(center, "requests", 50)
    assert (found["waiting"], codes(found)) == (False, ["cancelled"])
    assert codes(await why(center, "runs", "web")) == ["run_cancelled"]


async def test_in_the_hands_of_an_agent_and_after_it(center: RunningCenter) -> None:
    """R5: leased, busy, a retry, dead."""
    await center.open_run("web", block_size=5, retries=1)
    await center.put("web", [f"http://127.0.0.1/{n}" for n in range(10)])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    first, second = sorted(await agent.lease(2), key=lambda block: block.id)
    found = await why(center, "blocks", second.id)
    assert (found["state"], found["waiting"]) == ("using", False)
    assert codes(found) == ["leased", "agent_busy"]
    facts = found["reasons"][0]["facts"]
    assert facts["agent"] == "a1"
    assert facts["lease_until"] > center.services.clock.now()
    request = works_of(second)[0].id
    found = await why(center, "requests", request)
    assert (found["state"], codes(found)) == ("leased", ["leased", "agent_busy"])
    assert codes(await why(center, "runs", "web"))[0] == "leased"
    assert await agent.finish(second, "timeout", 0) == "stored"
    found = await why(center, "requests", request)
    assert codes(found) == ["retry"]
    assert found["reasons"][0]["text"].startswith("retry 1 of 1 at ")
    assert found["reasons"][0]["text"].endswith("after timeout")
    assert await agent.finish(first, "status", 404) == "stored"
    found = await why(center, "requests", works_of(first)[0].id)
    assert (found["waiting"], codes(found)) == (False, ["dead"])
    assert "status 404" in found["reasons"][0]["text"]
    assert codes(await why(center, "blocks", first.id)) == ["block_ended"]
    found = await why(center, "runs", "web")
    told = {reason["code"]: reason["text"] for reason in found["reasons"]}
    assert "after timeout at http://127.0.0.1/" in told["retry"], "U5: what failed"
    assert "status 404 at http://127.0.0.1/" in told["dead_requests"]
    assert (await center.admin.post("/api/v1/runs/web/finish")).status == 200
    assert codes(await why(center, "runs", "web"))[:2] == ["run_finished", "dead_requests"]


async def test_a_host_that_is_held_and_then_cools(center: RunningCenter) -> None:
    """R5, politeness: who has the host, how many are before, and until when it rests."""
    await center.open_run("web", retries=3)
    await center.put("web", [f"http://{SLOW}/{n}" for n in range(40)])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    (block,) = await agent.lease(5)
    last = 40
    found = await why(center, "requests", last)
    assert (found["state"], codes(found)) == ("delayed", ["host_held", "host_pace"])
    facts = found["reasons"][0]["facts"]
    assert (facts["block"], facts["agent"], facts["host"]) == (block.id, "a1", SLOW)
    assert facts["before"] == 40 - block.size - 1
    assert found["reasons"][0]["do"] == [f"skep why block:{block.id}"]
    assert codes(await why(center, "sites", SLOW))[0] == "host_held"
    numbers = [work.id for work in works_of(block)]
    note = SiteNote(SLOW, 1, 1, 1, left=True, trouble="429", cool=300.0, deferred=numbers[1:])
    outcomes = [Outcome(numbers[0], "status", 429, retry_after=300.0)]
    report = Report("a1", [BlockReport(block.id, block.token, outcomes, True, b"", [note])])
    assert (await agent.call("block", report)).status == 200
    found = await why(center, "sites", f"www.{SLOW}")
    assert (found["id"], found["state"], codes(found)) == (SLOW, "cooling", ["host_cooling"])
    assert found["reasons"][0]["until"] > center.services.clock.now() + 290
    for number in (numbers[1], last):
        assert codes(await why(center, "requests", number)) == ["host_cooling"]
    assert codes(await why(center, "requests", numbers[0])) == ["host_cooling", "retry"]
    assert codes(await why(center, "runs", "web"))[0] == "host_cooling"


async def test_a_run_without_an_agent_that_offers_its_downloader(center: RunningCenter) -> None:
    await center.hand_agent().register()
    code = {"source": "echo"}
    await center.open_run("sh", downloader="shell", code=code)
    await center.put("sh", ["http://127.0.0.1/"])
    await center.dispatched()
    found = await why(center, "runs", "sh")
    assert codes(found)[0] == "no_agent_offers"
    assert found["reasons"][0]["facts"]["downloader"] == "shell"


async def test_a_real_agent_that_dies_is_silent_and_then_gone(tmp_path: Path) -> None:
    """R5: `agent_silent` while its lease lasts, `no_live_agent` after it was taken back."""
    toy = ToyKind()
    toy.held = None
    settings = AgentSettings(report_every=0.1, lease_wait=1.0, drain_seconds=0.2)
    quick = {"center_heartbeat_every": 0.1, "center_alive_after": 1.0}
    async with running_center(tmp_path / "data", **quick) as center, AsyncExitStack() as stack:
        agent = running_agent(
            [center.url], center.agent.token, tmp_path / "agent", {"http": toy}, settings
        )
        await stack.enter_async_context(agent)
        await center.open_run("web")
        await center.put("web", ["http://127.0.0.1/1"])
        found = await until_found(lambda: _with_code(center, "leased"))
        assert found["waiting"] is False
        await stack.aclose()
        found = await until_found(lambda: _with_code(center, "no_live_agent"))
        assert (found["waiting"], found["state"]) == (True, "running")
        assert "1 agent registered" in found["reasons"][0]["text"]


async def _with_code(center: RunningCenter, code: str) -> Any:
    found = await why(center, "runs", "web")
    return found if codes(found)[0] == code else None


CRASHES = """
import os, skep
class Crash(skep.Spider):
    name = "crash"
    start_urls = ["http://127.0.0.1:9/"]
    def __init__(self, **arguments):
        super().__init__(**arguments)
        print("boom", flush=True)
        os._exit(7)
"""


async def test_jobs_say_when_they_run_and_what_their_spider_does(tmp_path: Path) -> None:
    """R5: off, scheduled, and a spider (a real child process) that waits for its restart."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "crash.py").write_text(CRASHES)
    quick = {"jobs_keep_every": 0.05, "jobs_restart_first": 60.0, "jobs_folder": str(folder)}
    async with running_center(tmp_path / "data", **quick) as center:
        await _applied(center, "daily", requests=["http://127.0.0.1/"], schedule={"cron": "@daily"})
        found = await why(center, "jobs", "daily")
        assert (found["state"], codes(found)) == ("idle", ["scheduled"])
        assert found["reasons"][0]["until"] > center.services.clock.now()
        await _applied(center, "daily", requests=["http://127.0.0.1/"], enabled=False)
        assert codes(await why(center, "jobs", "daily")) == ["job_disabled"]
        await _applied(center, "crash", spider={"path": "crash.py"})
        answer = await center.admin.post("/api/v1/jobs/crash/run")
        run = answer.json()["run"]

        async def resting() -> Any:
            found = await why(center, "runs", run)
            return found if "spider_restarting" in codes(found) else None

        found = await until_found(resting)
        assert codes(found)[0] == "spider_restarting"
        assert found["reasons"][0]["facts"]["starts"] == 1
        found = await why(center, "jobs", "crash")
        assert codes(found)[:2] == ["job_running", "spider_restarting"]
        assert found["reasons"][0]["do"] == [f"skep why run:{run}"]


async def _applied(center: RunningCenter, name: str, **document: Any) -> None:
    answer = await center.admin.put(f"/api/v1/jobs/{name}", {"name": name, **document})
    assert answer.status < 300, answer.content


async def test_who_is_not_there_is_not_found(center: RunningCenter) -> None:
    for path in ("requests/9", "blocks/9", "runs/none", "jobs/none"):
        answer = await center.admin.get(f"/api/v1/why/{path}")
        assert answer.status == 404, path
    for path in ("requests/x", "blocks/-1", "sites/a%20b"):
        assert (await center.admin.get(f"/api/v1/why/{path}")).status == 400, path
    assert codes(await why(center, "sites", "never.example"))[0] == "host_unknown"


async def test_the_command_line_says_why_and_what_it_took(
    center: RunningCenter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R5: numbers, names, prefixes, doubt, `--json`, exit codes; and the lists of runs."""
    token = tmp_path / "token"
    token.write_text(center.admin.token)
    token.chmod(0o600)

    async def skep(*words: str) -> tuple[int, str, str]:
        where = ("--center", center.url, "--token-file", str(token))
        code = await asyncio.to_thread(command_line, [*words, *where])
        said = capsys.readouterr()
        return code, said.out, said.err

    await center.open_run("web")
    await center.put("web", ["http://127.0.0.1/a"])
    await center.open_run("1")
    await center.dispatched()
    code, out, err = await skep("why", "1")
    assert code == 0
    assert out.startswith("request 1 of run web is queued (http://127.0.0.1/a)\n 1. no agent has")
    assert "    $ skep agent --center URL\n" in out
    assert err.startswith("1 is also a run: `skep why run:1 ")
    assert (await skep("why", "run:1"))[1].startswith("run 1 is running (job ")
    assert (await skep("why", "block:1"))[1].startswith("block 1 of run web is ready\n")
    code, out, err = await skep("why", "web", "--json")
    found = msgspec.json.decode(out)
    assert (found["kind"], codes(found)[0], err) == ("run", "no_agent", "")
    await center.admin.put("/api/v1/sites/web", {"rate": 1})
    assert "web is also a site: `skep why site:web" in (await skep("why", "web"))[2]
    assert (await skep("why", "nobody"))[0] == 3
    assert (await skep("why", "block:99"))[0] == 3
    listed = (await skep("runs"))[1]
    assert "WAITS FOR" in listed
    assert "no agent has ever registered with this center" in listed
    shown = (await skep("runs", "show", "web"))[1]
    assert "waits     no agent has ever registered with this center  (`skep why run:web " in shown


async def test_no_live_agent_with_the_label_of_a_run(center: RunningCenter) -> None:
    """R5, C4: placement by labels; who is there is told, with what it lacks."""
    await center.hand_agent().register()
    await center.open_run("web", placement={"labels": {"zone": "eu"}})
    await center.put("web", ["http://127.0.0.1/"])
    await center.dispatched()
    for kind, name in (("runs", "web"), ("requests", 1)):
        found = await why(center, kind, name)
        assert codes(found)[0] == "no_agent_fits"
        text = "no live agent with label zone=eu (a1: label zone is missing, not eu)"
        assert found["reasons"][0]["text"] == text
