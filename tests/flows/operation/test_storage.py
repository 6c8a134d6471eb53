"""Retention and full disks at a real center: archived bytes, ledgers, API and command line."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from skep.archive.frames import read_records, split_request, split_response
from skep.center import disk_space
from skep.cli.main import run as command_line
from skep.downloaders.registry import kinds
from skep.model.block import BlockReport
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.needs import unless_absent
from skep.testing.polling import until
from skep.testing.servers.recording_sites import Recorder
from skep.testing.small_disk import small_disk as mounted

FAST = AgentSettings(concurrency=8, report_every=0.1, lease_wait=1.0, drain_seconds=1.0)


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Segments are closed after every report."""
    async with running_center(tmp_path, archive_segment_bytes=1) as running:
        yield running


async def collect(center: RunningCenter, run: str, count: int = 5, size: int = 3000) -> list[int]:
    """A finished run with a body of `size` bytes for each request."""
    await center.open_run(run, robots=False)
    await center.put(run, [f"http://127.0.0.1:9/{run}/{n}" for n in range(count)])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    (block,) = await agent.lease()
    numbers = [work.id for work in works_of(block)]
    frames = os.urandom(size * count)
    outcomes = [Outcome(n, "", 200, offset=i * size, length=size) for i, n in enumerate(numbers)]
    assert await agent.report(BlockReport(block.id, block.token, outcomes, True, frames)) == [
        "stored"
    ]
    assert (await center.admin.post(f"/api/v1/runs/{run}/finish")).status == 200
    return numbers


def keep(center: RunningCenter, **limits: Any) -> None:
    """Change the settings of retention while the center runs."""
    retention = center.services.retention
    retention._settings = msgspec.structs.replace(retention._settings, **limits)


async def segments(center: RunningCenter) -> set[str]:
    folder = center.folder / "archive"
    return {path.name for path in folder.iterdir() if path.suffix == ".zst"}


async def clean(center: RunningCenter) -> Any:
    return (await center.admin.post("/api/v1/storage/clean")).json()


async def test_by_default_everything_is_kept(center: RunningCenter) -> None:
    """D8: nothing is deleted unless a setting says so."""
    numbers = await collect(center, "r")
    assert set((await clean(center)).values()) == {0}
    assert (await center.admin.get("/api/v1/storage/plan")).json()["items"] == []
    assert (await center.admin.get(f"/api/v1/requests/{numbers[0]}/record")).status == 200


async def test_old_bodies_go_and_the_rest_stays(center: RunningCenter) -> None:
    """D8: the plan says what goes; segments are deleted, rows and ledger stay."""
    first = await collect(center, "one")
    await collect(center, "two")
    await collect(center, "three")
    keep(center, bodies_age=1e-6)
    plan = (await center.admin.get("/api/v1/storage/plan")).json()
    assert (plan["runs"], plan["bytes"]) == (3, {"bodies": 45_000})
    assert {item["why"] for item in plan["items"]} == {"older than 1e-06 s"}
    before = await segments(center)
    deleted = await clean(center)
    assert (deleted["runs"], deleted["bodies"], deleted["segments"]) == (3, 45_000, 2)
    newest = max(before)
    assert await segments(center) == {newest}, "the newest of a writer stays: its number is taken"
    assert (await center.admin.get(f"/api/v1/requests/{first[0]}/record")).problem().status == 404
    view = (await center.admin.get(f"/api/v1/requests/{first[0]}")).json()
    assert view["attempts"][0]["length"] == 3000
    assert await center.ledger("one") == Ledger(accepted=5, done=5)
    assert set((await clean(center)).values()) == {0}


async def test_a_segment_that_a_kept_run_needs_stays(tmp_path: Path) -> None:
    """D8: deleted only when no kept row refers to it."""
    async with running_center(tmp_path) as center:
        await collect(center, "old")
        await center.open_run("open", robots=False)
        await center.put("open", ["http://127.0.0.1:9/x"])
        await center.dispatched()
        agent = center.hand_agent()
        (block,) = await agent.lease()
        (work,) = works_of(block)
        report = BlockReport(
            block.id, block.token, [Outcome(work.id, "", 200, length=9)], True, b"123456789"
        )
        await agent.report(report)
        keep(center, bodies_age=1e-6)
        assert (await clean(center))["bodies"] == 15_000
        record = await center.admin.get(f"/api/v1/requests/{work.id}/record")
        assert record.content == b"123456789"


async def test_rows_go_and_stay_in_the_ledger(center: RunningCenter) -> None:
    """D8, the ledger stays exact: counts of a run outlive its rows."""
    numbers = await collect(center, "gone")
    keep(center, rows_age=1e-6)
    await collect(center, "later")
    deleted = await clean(center)
    assert deleted["rows"] == 10
    assert await center.ledger("gone") == Ledger(accepted=5, done=5, forgotten=5)
    assert (await center.admin.get(f"/api/v1/requests/{numbers[0]}")).problem().status == 404
    view = (await center.admin.get("/api/v1/runs/gone")).json()
    assert (view["ledger"]["done"], view["figures"]["answers"]) == (5, 5)
    told = (await center.admin.get("/api/v1/storage")).json()
    assert [(d["kind"], d["runs"], d["n"]) for d in told["deleted"]] == [("rows", 2, 10)]
    alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
    assert [a["kind"] for a in alerts] == ["retention"]


async def test_the_oldest_go_when_there_is_too_much(center: RunningCenter) -> None:
    """D8: by bytes, over all jobs; as many runs as it takes."""
    for name in ("one", "two", "three", "four"):
        await collect(center, name)
    keep(center, bodies_bytes=31_000)
    plan = (await center.admin.get("/api/v1/storage/plan")).json()
    assert [item["run"] for item in plan["items"]] == ["one", "two"]
    assert (await clean(center))["bodies"] == 30_000
    assert (await center.admin.get("/api/v1/storage/plan")).json()["items"] == []


async def test_a_job_says_for_itself(center: RunningCenter) -> None:
    """D8: per job; another job's records are not touched."""
    document = {"name": "short", "requests": ["http://127.0.0.1/"], "keep": {"bodies_bytes": 1}}
    made = await center.admin.put("/api/v1/jobs/short", document)
    assert made.status < 300, made.content
    await collect(center, "mine")
    store = center.services.store
    await store.database.write(lambda tx: tx.sql("UPDATE runs SET job = 'short'") and None)  # type: ignore[attr-defined]
    await collect(center, "other")
    plan = (await center.admin.get("/api/v1/storage/plan")).json()
    assert [(i["run"], i["why"]) for i in plan["items"]] == [
        ("mine", "over keep.bodies_bytes of job short")
    ]


async def test_every_download_leaves_all_of_d8(center: RunningCenter, tmp_path: Path) -> None:
    """D8, field by field, of a real download: data in the archive, log in the attempt."""
    offered = kinds(SystemClock(), Random(3), EgressSettings(allow=("127.0.0.0/8",)))
    (tmp_path / "agent").mkdir()
    async with Recorder() as web:
        await center.open_run("r", robots=False, headers={"X-Asked": "yes"})
        uri = f"http://{web.hosts[0]}:{web.port}/page"
        body = base64.b64encode(b"what is asked").decode()
        await center.put("r", [{"uri": uri, "method": "POST", "body": body}])
        agent = running_agent([center.url], center.agent.token, tmp_path / "agent", offered, FAST)
        async with agent:
            ledgers = center.services.store.ledgers
            await until(ledgers.read, lambda ledger: not ledger.open, seconds=20)
    (line,) = (await center.admin.get("/api/v1/requests?run=r")).json()["items"]
    (log,) = (await center.admin.get(f"/api/v1/requests/{line['id']}")).json()["attempts"]
    assert (log["status"], log["failure"], log["detail"]) == (200, "", "")
    assert min(log["sent"], log["received"], log["elapsed_us"], log["at"]) > 0
    assert (log["address"], bool(log["agent"])) == (web.hosts[0], True)
    data = (await center.admin.get(f"/api/v1/requests/{line['id']}/record")).content
    response, request = read_records(data)
    assert response.headers["WARC-IP-Address"] == web.hosts[0]
    assert response.headers["WARC-Date"].startswith("20")
    asked, got = split_request(request), split_response(response)
    assert (asked.method, asked.body) == ("POST", b"what is asked")
    assert ("X-Asked", "yes") in asked.headers
    assert (got.status, bool(got.headers), bool(got.body)) == (200, True, True)


async def test_the_command_line(center: RunningCenter, capsys: pytest.CaptureFixture[str]) -> None:
    await collect(center, "r")
    keep(center, rows_age=1e-6)

    async def said(*words: str) -> str:
        arguments = ["storage", *words, "--data", str(center.folder)]
        assert await asyncio.to_thread(command_line, arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert "enough free space" in await said()
    assert "expired data of 1 runs" in await said("--plan")
    assert "5 requests" in await said("--clean")
    assert msgspec.json.decode(await said("--json"))["deleted"][0]["n"] == 5
    assert "nothing to delete" in await said("--plan")
    assert "no notices" in await said("--notices")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    with unless_absent(), mounted(tmp_path / "small", megabytes=24) as folder:
        yield folder


def fill(file: Path, leave: int = 0) -> None:
    free = os.statvfs(file.parent)
    count = max(free.f_bavail * free.f_frsize - leave, 0)
    with file.open("wb", buffering=0) as out:
        try:
            for _ in range(count // 4096):
                out.write(bytes(4096))
        except OSError:
            return


async def test_a_disk_that_fills_up(small_disk: Path) -> None:
    """Fault 25: no leases, 507, /readyz, an alert; results are still taken; it recovers."""
    async with running_center(small_disk / "data", keep_free_bytes=8 * 2**20) as center:
        await center.open_run("r", robots=False, block_size=1)
        await center.put("r", ["http://127.0.0.1:9/1", "http://127.0.0.1:9/2"])
        agent = center.hand_agent()
        await agent.register()
        await center.dispatched()
        (block,) = await agent.lease()
        fill(small_disk / "filler", leave=6 * 2**20)
        await center.services.disk.look()
        refused = await center.admin.post("/requestqueue/r", ["http://127.0.0.1:9/3"])
        assert (refused.status, refused.problem().code) == (507, "disk_full")
        assert await agent.lease() == []
        ready = await center.admin.get("/readyz")
        assert (ready.status, b"keep.free_bytes" in ready.content) == (503, True)
        assert await center.metric("skep_disk_full") == 1
        alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
        assert [alert["kind"] for alert in alerts] == ["disk_full"]
        assert "MiB free" in (await center.admin.get("/api/v1/storage")).json()["trouble"]
        assert await agent.finish(block) == "stored"
        (small_disk / "filler").unlink()
        await center.services.disk.look()
        assert (await center.put("r", ["http://127.0.0.1:9/3"]))["new"] == 1
        assert (await center.anyone.get("/readyz")).status == 200
        assert len(await agent.lease()) == 1
        assert (await center.ledger("r")).accepted == 3


async def test_a_disk_that_is_full_to_the_last_byte(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 25: ENOSPC from the database itself, whatever the figures say."""
    monkeypatch.setattr(disk_space, "TRIAL_EVERY", 0.0)
    async with running_center(small_disk / "data", keep_free_bytes=0) as center:
        await center.open_run("r", robots=False)
        fill(small_disk / "filler")
        many = [f"http://127.0.0.1:9/{'x' * 900}{n}" for n in range(1000)]
        assert (await center.admin.post("/requestqueue/r", many)).status == 507
        assert center.services.disk.trouble
        assert (await center.admin.post("/requestqueue/r", many[:1])).status == 507
        (small_disk / "filler").unlink()
        await center.services.disk.look()
        assert not center.services.disk.trouble
        assert (await center.put("r", many))["new"] == 1000
        await center.dispatched()
        assert await center.ledger("r") == Ledger(accepted=1000, queued=1000)
