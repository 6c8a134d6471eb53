"""The archive in S3, on a real SeaweedFS: the contract, sealing, and what may go wrong."""

from __future__ import annotations

import asyncio
import io
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from skep.archive.bucket import Bucket, BucketPlace, place_of
from skep.archive.bucket_segments import BucketSegments, RecentParts
from skep.archive.ports import Archive, RecordLocation
from skep.archive.registry import open_archive, open_bucket
from skep.archive.segment_objects import Slice, part_key, whole_key
from skep.errors import ArchiveDown, ConfigurationError, NotFound
from skep.testing.conformance.archive.sharing import SharingConformance
from skep.testing.conformance.archive.suite import (
    SEGMENT_BYTES,
    ArchiveConformance,
    committed,
    pages,
    read_all_back,
)
from skep.testing.polling import until
from skep.testing.servers.object_store import LOGIN, SECRET, SeaweedFS

with warnings.catch_warnings():  # FastWARC 1.1 warns about its own old names when imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator

pytestmark = pytest.mark.xdist_group("s3")

SEGMENT = "w-00000001.warc.zst"


class S3Backend:
    """A folder of a bucket of a test."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home
        self.bucket = open_bucket(url, LOGIN)
        self.bucket_segments = BucketSegments(self.bucket)

    def make(self, writer: str = "w", segment_bytes: int = SEGMENT_BYTES) -> Archive:
        return open_archive(self.url, writer, segment_bytes, home=self.home, login=LOGIN)

    async def keys(self) -> list[str]:
        return sorted(one.key for one in await self.bucket.list() if "README" not in one.key)

    async def until_sealed(self, count: int) -> list[str]:
        """Wait until `count` segments are one object each, and no part of them is left."""

        def sealed(keys: list[str]) -> bool:
            parts = {key.split("/")[2] for key in keys if "/parts/" in key}
            wholes = [key for key in keys if key.endswith(".warc.zst")]
            return len(wholes) == count and not parts & {key[-17:-9] for key in wholes}

        keys = await until(self.keys, sealed, seconds=20)
        return [key for key in keys if key.endswith(".warc.zst")]


@pytest.fixture
def backend(seaweedfs_server: SeaweedFS, tmp_path: Path) -> S3Backend:
    return S3Backend(seaweedfs_server.fresh_archive(), tmp_path)


class TestS3Archive(SharingConformance, ArchiveConformance):
    """The contract, on a real bucket."""


async def test_full_segments_become_one_object_each(backend: S3Backend) -> None:
    """D8: an ordinary .warc.zst, read by FastWARC; places stay good all the while."""
    archive = backend.make(segment_bytes=20_000)
    await archive.open(committed())
    blobs = pages(80)
    places = [(await archive.append([blob]))[0] for blob in blobs]
    segments = sorted({place.segment for place in places})
    wholes = await backend.until_sealed(len(segments) - 1)
    assert wholes == [whole_key(segment) for segment in segments[:-1]]
    reader = backend.make(writer="reader")
    for one in (archive, reader):
        await read_all_back(one, places, blobs)
    for key in wholes:
        size = await backend.bucket.size(key)
        data = await backend.bucket.get(key, 0, size or 0)
        records = ArchiveIterator(io.BytesIO(data or b""))
        kinds = [str(record.record_type).rpartition(".")[2] for record in records]
        within = sum(place.segment in key for place in places)
        assert kinds == ["warcinfo", *["response", "request"] * within]
    await archive.close()


async def test_callers_share_a_put(backend: S3Backend) -> None:
    """Two hundred callers at once cost a few objects, not two hundred."""
    archive = backend.make()
    await archive.open(committed())
    await asyncio.gather(*(archive.append(pages(1, seed=number)) for number in range(200)))
    assert 1 <= len(await backend.keys()) < 20
    await archive.close()


async def leave_parts(backend: S3Backend) -> tuple[list[RecordLocation], list[bytes]]:
    """What a center leaves that was killed: a segment in five parts."""
    archive = backend.make()
    await archive.open(committed())
    blobs = pages(5)
    places = [(await archive.append([blob]))[0] for blob in blobs]
    await archive.close()
    assert len(await backend.keys()) == 5
    return places, blobs


@pytest.mark.parametrize("step", ["nothing", "whole", "half a whole", "first part", "some parts"])
async def test_a_seal_that_was_cut_off_is_taken_up(backend: S3Backend, step: str) -> None:
    """kill -9 at any step of making one object of many: nothing is lost, nothing is left."""
    places, blobs = await leave_parts(backend)
    layout = await backend.bucket_segments.look(SEGMENT)
    if step != "nothing":
        cut = layout.end // 2 if step == "half a whole" else layout.end
        whole = await backend.bucket_segments.read(SEGMENT, 0, cut)
        await backend.bucket.put(whole_key(SEGMENT), whole)
    gone = {"first part": 1, "some parts": 3}.get(step, 0)
    await backend.bucket.delete([part.key for part in layout.parts[:gone]])
    await read_all_back(backend.make(writer="reader"), places, blobs)

    again = backend.make()
    await again.open(committed(*zip(places, blobs, strict=True)))
    assert await backend.until_sealed(1) == [whole_key(SEGMENT)]
    await read_all_back(again, places, blobs)
    assert (await again.usage()) == (1, layout.end)
    await again.close()


async def test_what_no_row_points_to_is_kept_and_told(backend: S3Backend) -> None:
    """R3: of a center whose store lost rows, or that was killed between the PUT and the commit:
    it is sealed like any other segment, its number stays taken, and it was deleted before."""
    places, blobs = await leave_parts(backend)
    archive = backend.make()
    (unknown,) = await archive.open(committed())
    assert unknown.segment == SEGMENT
    assert unknown.size >= sum(map(len, blobs))
    (place,) = await archive.append(blobs[:1])
    assert place.segment > SEGMENT
    await read_all_back(archive, [*places, place], [*blobs, blobs[0]])
    await archive.close()
    with pytest.raises(ConfigurationError, match="the store is empty"):
        await backend.make().open(committed(), store_is_empty=True)


async def test_a_late_put_is_not_part_of_a_sealed_segment(backend: S3Backend) -> None:
    """A PUT that was given up may still happen; it is kept beside the segment (R3)."""
    places, blobs = await leave_parts(backend)
    end = (await backend.bucket_segments.look(SEGMENT)).end
    await backend.bucket_segments.seal(SEGMENT)
    await backend.bucket.put(part_key(SEGMENT, end), b"late")
    newer = whole_key(SEGMENT.replace("1.warc", "2.warc"))
    await backend.bucket.put(newer, b"the newest")
    archive = backend.make()
    await archive.open(committed(*zip(places, blobs, strict=True)))
    assert await backend.keys() == sorted([whole_key(SEGMENT), part_key(SEGMENT, end), newer])
    await read_all_back(archive, places, blobs)
    await archive.close()


async def test_copies_of_a_center_replace_nothing(backend: S3Backend, tmp_path: Path) -> None:
    """Two centers with one name, from a copied data folder: each byte stays where it is."""
    twins = [
        open_archive(backend.url, "w", 6000, home=tmp_path / name, login=LOGIN) for name in "ab"
    ]
    for twin in twins:
        await twin.open(committed())
    kept: list[tuple[RecordLocation, bytes]] = []
    for number in range(20):
        for seed, twin in enumerate(twins):
            blobs = pages(1, seed=100 * seed + number)
            kept += zip(await twin.append(blobs), blobs, strict=True)
    await asyncio.gather(*(twin.close() for twin in twins))
    places, blobs = [place for place, _ in kept], [blob for _, blob in kept]
    await read_all_back(backend.make(writer="reader"), places, blobs)


async def test_segments_of_a_folder_are_copied_into_a_bucket(
    backend: S3Backend, tmp_path: Path
) -> None:
    """As docs/how-to/archive.md says: the places stay, and the center goes on behind them."""
    folder = open_archive(str(tmp_path / "archive"), "w", 6000)
    await folder.open(committed())
    blobs = pages(40)
    places = [(await folder.append([blob]))[0] for blob in blobs]
    await folder.close()
    for path in (tmp_path / "archive").glob("*.warc.zst"):
        await backend.bucket.put(f"w/{path.name}", path.read_bytes())
    archive = backend.make()
    await archive.open(committed(*zip(places, blobs, strict=True)))
    (place,) = await archive.append(blobs[:1])
    assert place.segment > max(place.segment for place in places)
    await read_all_back(archive, [*places, place], [*blobs, blobs[0]])
    await archive.close()


class MeddledBucket(Bucket):
    """The segment is deleted at the moment at which the whole object is written."""

    async def put(self, key: str, data: bytes | bytearray) -> None:
        await BucketSegments(self).drop(SEGMENT)
        await super().put(key, data)


async def test_a_segment_that_is_deleted_while_it_is_sealed_is_gone(backend: S3Backend) -> None:
    places, blobs = await leave_parts(backend)
    bucket_segments = BucketSegments(MeddledBucket(place_of(backend.url), tuple(LOGIN.split(":"))))  # type: ignore[arg-type]  # two texts
    await bucket_segments.seal(SEGMENT)
    assert await backend.keys() == []
    with pytest.raises(NotFound):
        await bucket_segments.read(SEGMENT, places[0].offset, len(blobs[0]))


class LyingBucket(Bucket):
    """A storage that takes a whole, and keeps something else."""

    async def put(self, key: str, data: bytes | bytearray) -> None:
        await super().put(key, bytes(len(data)))


async def test_parts_stay_when_the_whole_is_not_what_was_written(backend: S3Backend) -> None:
    places, blobs = await leave_parts(backend)
    bucket_segments = BucketSegments(LyingBucket(place_of(backend.url), tuple(LOGIN.split(":"))))  # type: ignore[arg-type]  # two texts
    with pytest.raises(ArchiveDown, match="its parts are kept"):
        await bucket_segments.seal(SEGMENT)
    assert len([key for key in await backend.keys() if "/parts/" in key]) == len(places)
    await read_all_back(backend.make(writer="reader"), places, blobs)


@asynccontextmanager
async def slow_down(target: str, refusals: int) -> AsyncIterator[str]:
    """A front that refuses a number of calls, as S3 does under high load."""
    left = [refusals]

    async def forward(request: web.Request) -> web.Response:
        if left[0]:
            left[0] -= 1
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        body = await request.read()
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, target + request.path_qs, data=body, headers=request.headers
            ) as answer,
        ):
            headers = {"ETag": answer.headers.get("ETag", "")}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_storage_that_is_asked_too_much_is_asked_again(
    seaweedfs_server: SeaweedFS, backend: S3Backend, tmp_path: Path
) -> None:
    """SlowDown: twice is waited for, all the time is said, with the storage's own word."""
    async with slow_down(seaweedfs_server.url, 2) as front:
        url = backend.url.replace(seaweedfs_server.url, front)
        bucket = open_bucket(url, LOGIN)
        await bucket.put("w/x", b"x")
        assert await backend.bucket.size("w/x") == 1
    async with slow_down(seaweedfs_server.url, 100) as front:
        url = backend.url.replace(seaweedfs_server.url, front)
        archive = open_archive(url, "w", SEGMENT_BYTES, home=tmp_path / "x", login=LOGIN)
        with pytest.raises(ArchiveDown, match="SlowDown"):
            await archive.open(committed())


async def test_what_is_wrong_is_said_without_the_secret(backend: S3Backend) -> None:
    for url, login, said in (
        (backend.url.replace("skep-tests", "nowhere"), LOGIN, "no bucket nowhere"),
        (backend.url, f"tester:not-{SECRET}", "SignatureDoesNotMatch"),
        (backend.url, f"nobody:{SECRET}", "check the credentials"),
        ("s3://skep-tests/x?endpoint=http://127.0.0.1:1", LOGIN, "does not answer"),
    ):
        archive = open_archive(url, "w", 1, home=backend.home, login=login)
        with pytest.raises(ArchiveDown, match=said) as caught:
            await archive.open(committed())
        assert SECRET not in caught.value.detail
        assert SECRET not in archive.describe()
        await archive.close()


def test_urls_of_buckets() -> None:
    at = "http://127.0.0.1:8333"
    assert place_of(f"s3://bucket?endpoint={at}") == BucketPlace("bucket", "", at)
    assert place_of("s3://my.bucket/a/b/?region=eu-west-1") == BucketPlace(
        "my.bucket", "a/b/", "", "eu-west-1"
    )


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:bucket",
        "s3://key:secret@bucket/x",
        "s3://bucket/../x",
        "s3://bucket/x?endpoint=ftp://h",
        "s3://bucket/x?endpoint=http://u:p@h",
        "s3://bucket/x?acl=public",
        "s3://B/x",
    ],
)
def test_other_urls_are_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        open_archive(url, "w", 1, home=tmp_path)


@pytest.mark.parametrize("login", ["key", ":secret", "key:", ":"])
def test_half_a_login_is_refused(login: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="KEY:SECRET"):
        open_archive("s3://bucket/x", "w", 1, home=tmp_path, login=login)


def test_the_newest_parts_are_kept_in_memory_up_to_a_bound() -> None:
    recent = RecentParts(limit=10)
    for number in range(4):
        recent.add(str(number), bytes([number]) * 4)
    kept = [recent.get(Slice(str(number), 1, 2)) for number in range(4)]
    assert kept == [None, None, b"\2\2", b"\3\3"]
    recent.drop(["2", "9"])
    recent.add("4", bytes(6))
    assert recent.get(Slice("3", 0, 1)) == b"\3"
