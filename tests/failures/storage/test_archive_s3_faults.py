"""The archive in S3 under fire: a real SeaweedFS dies, writers and centers are killed.

What was acknowledged must be readable afterwards, from every other center as well, and
nothing half-made may be left in the bucket.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.archive import s3
from skep.archive.bucket import Bucket
from skep.archive.registry import open_archive, open_bucket
from skep.errors import ArchiveDown
from skep.testing.conformance.archive.suite import committed, pages, read_all_back
from skep.testing.faults.archive_writer import (
    Said,
    WriterSetup,
    committed_at,
    ends_of,
    run_and_kill,
)
from skep.testing.fleet import Fleet, tell
from skep.testing.polling import until
from skep.testing.processes import CenterProcess
from skep.testing.servers import Postgres
from skep.testing.servers.object_store import LOGIN, SeaweedFS, seaweedfs

pytestmark = pytest.mark.xdist_group("s3")

SEGMENT_BYTES = 100_000
FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}


@pytest.fixture(scope="module")
def storage() -> Iterator[SeaweedFS]:
    """A server of these tests alone, because it will be killed."""
    with seaweedfs() as server:
        yield server


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.slow)])
async def test_a_writer_is_killed_in_the_middle_of_uploads(
    tmp_path: Path, storage: SeaweedFS, kills: int
) -> None:
    """D8: SIGKILL at moments from a seed, also while segments are sealed; another reads all."""
    rng, url = Random(8), storage.fresh_archive()
    reader = open_archive(url, "reader", SEGMENT_BYTES, home=tmp_path, login=LOGIN)
    said: list[Said] = []
    for kill in range(kills):
        lines = rng.randrange(1, 120)
        orders = WriterSetup(url, str(tmp_path), LOGIN, SEGMENT_BYTES, kill * 10, ends_of(said))
        said += await asyncio.to_thread(run_and_kill, orders, lines)
        for place in said:
            blob = await reader.read(place.segment, place.offset, place.length)
            assert place.is_of(blob)
    assert len(set(said)) == len(said)
    ends = ends_of(said)
    again = open_archive(url, "w", SEGMENT_BYTES, home=tmp_path, login=LOGIN)
    await again.open(committed_at(ends))
    bucket = open_bucket(url, LOGIN)
    await until_sealed(bucket, ends)
    for place in said:
        blob = await reader.read(place.segment, place.offset, place.length)
        assert place.is_of(blob)
    await again.close()


async def until_sealed(bucket: Bucket, ends: dict[str, int]) -> None:
    """Every segment into which rows point becomes one object, and no part of it is left."""

    async def left() -> set[str]:
        numbers = {one.key.split("/")[2] for one in await bucket.list("w/parts")}
        return numbers & {segment[2:10] for segment in ends}

    await until(left, lambda found: not found, seconds=20, what="every segment is sealed")


async def test_a_frozen_storage_is_said_and_waited_for(
    tmp_path: Path, storage: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP: who asks is told soon; an append waits, and is kept once when it thaws."""
    monkeypatch.setattr(s3, "LOOK_SECONDS", 0.5)
    archive = open_archive(storage.fresh_archive(), "w", 10**6, home=tmp_path, login=LOGIN)
    await archive.open(committed())
    blobs = pages(4)
    places = await archive.append(blobs[:2])
    await asyncio.to_thread(storage.pause)
    waiting = asyncio.create_task(archive.append(blobs[2:]))
    with pytest.raises(ArchiveDown, match="does not answer"):
        await archive.usage()
    assert not waiting.done()
    await asyncio.to_thread(storage.resume)
    places += await waiting
    await read_all_back(archive, places, blobs)
    await archive.usage()
    await archive.close()


def ready(center: CenterProcess) -> tuple[int, dict[str, Any]]:
    """What a center says of itself: (status, checks that are not well)."""
    connection = HTTPConnection("127.0.0.1", center.port, timeout=15)
    try:
        known = {"Authorization": f"Bearer {center.admin_token}"}
        connection.request("GET", "/readyz?verbose", headers=known)
        answer = connection.getresponse()
        checks = json.loads(answer.read())["checks"]
        return answer.status, {c["name"]: c["detail"] for c in checks if not c["ok"]}
    finally:
        connection.close()


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
async def test_two_centers_share_a_bucket(
    tmp_path: Path, postgres_server: Postgres, redis_url: str, storage: SeaweedFS, rounds: int
) -> None:
    """Fault 15, D8: kill -9 of the storage under load, then of a center that stays away.

    Meanwhile the centers say 503 and why, and go on by themselves. What came through the
    first center is read through the second one, by the API and by the command line.
    """
    env = {
        "SKEP_STORE_URL": postgres_server.fresh_database(),
        "SKEP_BUS_URL": redis_url,
        "SKEP_ARCHIVE_URL": storage.fresh_archive(),
        "SKEP_ARCHIVE_SEGMENT_BYTES": str(SEGMENT_BYTES),
        **storage.environment,
    }
    async with Fleet(tmp_path, env, latency=0.02) as fleet:
        first, second = fleet.center, await fleet.another_center("second")
        agent = await fleet.agent("a", FEW_AT_ONCE, [first.url])
        for turn in range(rounds):
            await fleet.offer(300)
            await fleet.until_done(300 * turn + 60)
            await asyncio.to_thread(storage.kill)
            before = await fleet.client.ledger()
            for center in (first, second):
                status, wrong = await asyncio.to_thread(ready, center)
                assert (status, list(wrong)) == (503, ["archive"])
                assert "does not answer" in wrong["archive"]
            await asyncio.to_thread(storage.start)
            await fleet.until_done(before.done + 60)
            assert (await asyncio.to_thread(ready, second)) == (200, {})
        await asyncio.to_thread(first.kill)
        await asyncio.to_thread(agent.kill)
        await fleet.reach(second)
        number = await any_ended(fleet)
        body = await fleet.client.api.call("GET", f"/api/v1/requests/{number}/body", None, bytes)
        assert body.startswith(b"<!doctype html>")
        assert await asyncio.to_thread(body_by_cli, second, number) == body
        await fleet.agent("b", FEW_AT_ONCE, [second.url])
        await fleet.until_all_ended(60)
        balance = await fleet.check()
    tell("26", storage_kills=rounds, **balance.figures())
    assert (balance.ledger.accepted, balance.ledger.done) == (300 * rounds, 300 * rounds)


async def any_ended(fleet: Fleet) -> int:
    """The id of a request that is done."""
    page = await fleet.client.api.call("GET", "/api/v1/requests?state=done&limit=1", None, dict)
    return int(page["items"][0]["id"])


def body_by_cli(center: CenterProcess, number: int) -> bytes:
    command = [sys.executable, "-m", "skep", "request", "body", str(number)]
    reach = ["--center", center.url, "--token-file", str(center.folder / "admin.token")]
    return subprocess.run([*command, *reach], check=True, capture_output=True, timeout=60).stdout
