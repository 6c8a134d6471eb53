"""Dead requests at a real center: groups, filters, bulk acts, by API and command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.cli.main import run as command_line
from skep.model.block import BlockReport
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.states import RunState
from skep.testing.grounds.centers import RunningCenter, running_center, works_of

EVIL = "<script>alert(1)</script> =cmd()"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


async def fail_all(center: RunningCenter, run: str, count: int, hosts: int = 1) -> None:
    """Every request of a new run is dead: half by TLS, half by 503."""
    await center.open_run(run, block_size=50, robots=False)
    uris = [f"http://127.0.0.{1 + n % hosts}:{9000 + n % hosts}/{n}" for n in range(count)]
    await center.put(run, uris)
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    while blocks := await agent.lease(10):
        await agent.report(*(BlockReport(b.id, b.token, outcomes(b)) for b in blocks))


def outcomes(block: Any) -> list[Outcome]:
    found = []
    for work in works_of(block):
        tls = f"TLS handshake with 10.1.2.{work.id % 250}:443 failed: 0x{work.id:08x} {EVIL}"
        odd = work.id % 2
        found.append(Outcome(work.id, "network" if odd else "status", 0 if odd else 503, tls))
    return found


async def act(center: RunningCenter, name: str, body: dict[str, Any]) -> Any:
    return (await center.admin.post(f"/api/v1/failures/{name}", body)).json()


async def test_failures_come_in_groups(center: RunningCenter) -> None:
    """Issue 4.6: '30 x network, host X', whatever numbers and addresses they name."""
    await fail_all(center, "r", 60)
    await fail_all(center, "s", 10, hosts=2)
    listed = (await center.admin.get("/api/v1/failures?run=r")).json()
    assert listed["requests"] == 60 == (await center.ledger("r")).dead
    first, second = listed["items"]
    assert {first["requests"], second["requests"]} == {30}
    assert {first["failure"], second["failure"]} == {"network", "status"}
    assert "10.1.2" not in first["text"]
    assert "TLS handshake with <address>" in first["text"]
    view = (await center.admin.get(f"/api/v1/failures/{first['group']}?run=r&limit=10")).json()
    more = await center.admin.get(
        f"/api/v1/failures/{first['group']}?run=r&after={view['next']}&limit=100"
    )
    ids = [item["id"] for item in (*view["items"], *more.json()["items"])]
    assert len(set(ids)) == 30
    assert EVIL in view["items"][0]["detail"]
    assert (await center.admin.get("/api/v1/failures/abc@nowhere")).problem().status == 404
    assert (await center.admin.get("/api/v1/failures/zzz")).problem().status == 400


async def test_a_dry_run_counts_and_changes_nothing(center: RunningCenter) -> None:
    """Issue 4.6: exactly how many, with examples, before anything happens."""
    await fail_all(center, "r", 40)
    plan = await act(center, "retry", {"filter": {"run": "r", "failure": "network"}})
    assert (plan["dry_run"], plan["matched"], plan["changed"]) == (True, 20, 0)
    assert len(plan["examples"]) == 5
    assert (await center.ledger("r")).dead == 40
    refused = await center.admin.post("/api/v1/failures/retry", {"filter": {}, "dry_run": False})
    assert '"all": true' in refused.problem().detail
    misspelt = await center.admin.post("/api/v1/failures/retry", {"filter": {"hots": "x"}})
    assert misspelt.problem().status == 400


async def test_a_bulk_act_goes_in_batches_and_ends(center: RunningCenter) -> None:
    """Issue 4.6: bounded batches; what dies again meanwhile is not in it."""
    await fail_all(center, "r", 40)
    order: dict[str, Any] = {"filter": {"run": "r"}, "dry_run": False, "limit": 15}
    changed = []
    while True:
        answer = await act(center, "retry", order)
        changed.append(answer["changed"])
        order |= {"before": answer["before"], "after": answer["next"] or 0}
        if answer["next"] is None:
            break
    assert changed == [15, 15, 10]
    ledger = await center.ledger("r")
    assert (ledger.dead, ledger.open) == (0, 40)


async def test_an_agent_gets_what_was_retried(center: RunningCenter) -> None:
    await fail_all(center, "r", 20)
    await act(center, "retry", {"filter": {"run": "r", "status": 503}, "dry_run": False})
    await center.dispatched()
    agent = center.hand_agent()
    (block,) = await agent.lease()
    assert await agent.finish(block) == "stored"
    assert await center.ledger("r") == Ledger(accepted=20, dead=10, done=10)
    request = works_of(block)[0].id
    view = (await center.admin.get(f"/api/v1/requests/{request}")).json()
    assert [attempt["failure"] for attempt in view["attempts"]] == ["status", ""]


async def test_requests_are_listed_and_cancelled_by_filter(center: RunningCenter) -> None:
    await center.open_run("r")
    await center.admin.post("/api/v1/runs/r/pause")
    await center.put("r", [f"http://127.0.0.1/{kind}/{n}" for kind in "ab" for n in range(10)])
    page = (await center.admin.get("/api/v1/requests?run=r&limit=15&text=/A/")).json()
    assert (len(page["items"]), page["next"]) == (10, None)
    body: dict[str, Any] = {"filter": {"run": "r", "text": "/a/"}}
    plan = (await center.admin.post("/api/v1/requests/cancel", body)).json()
    assert (plan["matched"], plan["changed"]) == (10, 0)
    done = (await center.admin.post("/api/v1/requests/cancel", {**body, "dry_run": False})).json()
    assert (done["changed"], done["left"]) == (10, 0)
    assert await center.ledger("r") == Ledger(accepted=20, waiting=10, cancelled=10)


async def cli(center: RunningCenter, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Standard output of a command that worked."""
    arguments = [*words, "--data", str(center.folder)]
    assert await asyncio.to_thread(command_line, arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


async def test_the_command_line(center: RunningCenter, capsys: pytest.CaptureFixture[str]) -> None:
    """ls, show, a dry run, retry, cancel, forget; text for people, JSON for programs."""
    await fail_all(center, "r", 30)
    text = await cli(center, capsys, "failures", "ls", "--run", "r")
    assert "network" in text
    assert "TLS handshake with <address>" in text
    listed = msgspec.json.decode(await cli(center, capsys, "failures", "--json"))
    group = listed["items"][0]["group"]
    shown = await cli(center, capsys, "failures", "show", group)
    assert shown.startswith("15 x")
    plan = await cli(center, capsys, "failures", "retry", group, "--dry-run")
    assert plan.startswith("retry would change 15 requests; nothing was changed")
    assert (await center.ledger("r")).dead == 30
    done = await cli(center, capsys, "failures", "retry", group, "--yes", "--batch", "4")
    assert done.startswith("retry: 15 requests changed, 0 unchanged")
    gone = await cli(center, capsys, "failures", "cancel", "--run", "r", "--yes", "--json")
    assert msgspec.json.decode(gone)["changed"] == 15
    assert (await center.ledger("r")).cancelled == 15
    request = (await center.admin.get("/api/v1/requests?run=r&state=cancelled")).json()["items"][0]
    text = await cli(center, capsys, "request", "show", str(request["id"]))
    assert "TLS handshake with 10.1.2" in text
    assert "cancelled" in text
    assert "15" in await cli(center, capsys, "request", "cancel", "--run", "r", "--yes")
    arguments = ["failures", "retry", "--data", str(center.folder)]
    assert await asyncio.to_thread(command_line, arguments) == 2


async def test_the_dead_of_a_jobs_run_get_another_round(tmp_path: Path) -> None:
    """Issue 4.6, job-level retry: once all others have ended, and a limited number of times."""
    flags = {"jobs_keep_every": 0.05, "jobs_restart_first": 0.01, "jobs_restart_cap": 0.01}
    async with running_center(tmp_path, **flags) as center, asyncio.timeout(20):
        document = {
            "name": "j",
            "requests": [f"http://127.0.0.1:9/{n}" for n in range(3)],
            "settings": {"run_retries": 2, "robots": False},
        }
        assert (await center.admin.put("/api/v1/jobs/j", document)).status < 300
        started = (await center.admin.post("/api/v1/jobs/j/run")).json()
        agent = center.hand_agent()
        await agent.register()
        run, rounds = started["run"], 0
        while (await center.services.store.runs.get(run)).state is RunState.RUNNING:
            for block in await agent.lease(1, wait=0.2):
                rounds += 1
                await agent.finish(block, "network", 0)
        assert rounds == 3
        assert await center.ledger(run) == Ledger(accepted=3, dead=3)
