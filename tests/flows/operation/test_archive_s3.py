"""A center with its archive in S3: retention, what it says of itself, and the doctor."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from skep.archive.registry import open_bucket
from skep.embed.checks.examination import archive as look_at_archive
from skep.embed.embedded import LocalCenter
from skep.errors import ArchiveDown, ConfigurationError
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.settings import Settings, load
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.servers.object_store import LOGIN, SECRET, SeaweedFS

pytestmark = pytest.mark.xdist_group("s3")

BODY = 3000


def with_secret(folder: Path, login: str = LOGIN) -> Path:
    """A data folder with the credentials in a file."""
    (folder / "secrets").mkdir(parents=True, exist_ok=True)
    (folder / "secrets" / "s3").write_text(f"{login}\n")
    return folder


@pytest.fixture
def url(seaweedfs_server: SeaweedFS) -> str:
    return seaweedfs_server.fresh_archive()


@pytest.fixture
async def center(tmp_path: Path, url: str) -> AsyncIterator[RunningCenter]:
    """Segments are closed after every report."""
    flags: dict[str, Any] = {"archive_segment_bytes": 1, "archive_secret": "s3"}
    async with running_center(with_secret(tmp_path), archive_url=url, **flags) as running:
        yield running


async def collect(center: RunningCenter, run: str) -> int:
    """A finished run with one body; the id of its request."""
    await center.open_run(run, robots=False)
    await center.put(run, [f"http://127.0.0.1:9/{run}"])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    (block,) = await agent.lease()
    (work,) = works_of(block)
    frames = os.urandom(BODY)
    done = [Outcome(work.id, "", 200, length=BODY)]
    assert await agent.report(BlockReport(block.id, block.token, done, True, frames)) == ["stored"]
    record = await center.admin.get(f"/api/v1/requests/{work.id}/record")
    assert record.content == frames
    assert (await center.admin.post(f"/api/v1/runs/{run}/finish")).status == 200
    return work.id


async def test_old_bodies_go_from_the_bucket(center: RunningCenter, url: str) -> None:
    """D8: a segment goes when no row points into it, sealed or not; the newest stays."""
    numbers = [await collect(center, run) for run in ("one", "two", "three")]
    retention = center.services.retention
    retention._settings = msgspec.structs.replace(retention._settings, bodies_age=1e-6)
    deleted = (await center.admin.post("/api/v1/storage/clean")).json()
    assert (deleted["bodies"], deleted["segments"]) == (3 * BODY, 2)
    for number in numbers[:2]:
        gone = await center.admin.get(f"/api/v1/requests/{number}/record")
        assert gone.problem().status == 404
    objects = [one.key for one in await open_bucket(url, LOGIN).list()]
    kept = [key for key in objects if "README" not in key]
    assert len(kept) == 1
    assert "00000003" in kept[0]


async def test_it_says_where_it_is_and_nothing_else(center: RunningCenter, url: str) -> None:
    """Fault 68: the credentials are in no answer."""
    ready = await center.admin.get("/readyz?verbose")
    storage = await center.admin.get("/api/v1/storage")
    for answer in (ready, storage):
        assert answer.status == 200
        assert b"s3://skep-tests/archive-" in answer.content
        assert SECRET.encode() not in answer.content
    folders = [check["detail"] for check in ready.json()["checks"] if check["name"] == "disk"]
    assert "s3:" not in folders[0], "the room on the disk is not asked of a bucket"


async def test_an_archive_that_is_down_is_a_503_with_a_reason(
    center: RunningCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await collect(center, "run")
    archive = center.services.archive
    nowhere = open_bucket("s3://skep-tests/x?endpoint=http://127.0.0.1:1", LOGIN)
    monkeypatch.setattr(archive, "_bucket_segments", type(archive._bucket_segments)(nowhere))  # type: ignore[attr-defined]  # its own
    problem = (await center.admin.get(f"/api/v1/requests/{number}/record")).problem()
    assert (problem.status, problem.code, problem.retryable) == (503, "archive_down", True)
    assert "does not answer" in problem.detail


def settings(folder: Path, url: str) -> Settings:
    return load(flags={"data": str(folder), "archive.url": url, "archive.secret": "s3"})


async def test_the_doctor_looks_into_the_bucket(tmp_path: Path, url: str) -> None:
    good = with_secret(tmp_path / "good")
    (finding,) = await look_at_archive(settings(good, url))
    assert finding.ok
    assert "skep-tests" in finding.detail
    for folder, address, said in (
        (good, url.replace("skep-tests", "nowhere"), "no bucket nowhere"),
        (with_secret(tmp_path / "bad", f"tester:not-{SECRET}"), url, "SignatureDoesNotMatch"),
        (tmp_path / "absent", url, "cannot read"),
        (with_secret(tmp_path / "half", "half"), url, "KEY:SECRET"),
        (good, "s3://", "write it as s3://BUCKET"),
    ):
        (finding,) = await look_at_archive(settings(folder, address))
        assert not finding.ok
        assert said in finding.detail
        assert SECRET not in finding.detail


async def test_a_center_that_cannot_reach_its_bucket_does_not_start(tmp_path: Path) -> None:
    nowhere = "s3://bucket/x?endpoint=http://127.0.0.1:1"
    flags = {"data": str(with_secret(tmp_path)), "center.port": 0, "archive.url": nowhere}
    flags["center.start_wait"] = 1
    center = LocalCenter(load(flags={**flags, "archive.secret": "s3"}), SystemClock(), Random(7))
    try:
        with pytest.raises(ArchiveDown, match="does not answer"):
            await center.start()
    finally:
        await center.stop()
    with pytest.raises(ConfigurationError, match="cannot read"):
        LocalCenter(load(flags={**flags, "archive.secret": "other"}), SystemClock(), Random(7))
