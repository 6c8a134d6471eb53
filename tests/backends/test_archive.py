"""The archive in a folder: the contract, and every segment read by tools of other people.

FastWARC reads `.warc.zst` as it is; warcio knows no zstd, so it gets the same bytes after
they went through zstandard.
"""

from __future__ import annotations

import asyncio
import io
import os
import resource
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from skep.archive import segments
from skep.archive.folder import FolderArchive
from skep.archive.frames import Cut, Exchange, FrameMaker, read_records
from skep.archive.ports import Archive
from skep.archive.registry import open_archive
from skep.errors import ConfigurationError, DiskFull, NotFound, Unavailable
from skep.testing.clock import ManualClock
from skep.testing.conformance.archive.sharing import SharingConformance
from skep.testing.conformance.archive.suite import (
    SEGMENT_BYTES,
    InPlaceConformance,
    committed,
    pages,
    put_and_close,
    read_all_back,
)

with warnings.catch_warnings():  # FastWARC 1.1 warns about its own old names when imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator as FastwarcIterator


class Seen(NamedTuple):
    """A record as some reader saw it."""

    type: str
    uri: str
    status: int
    body: bytes
    cut: str


def by_fastwarc(path: Path) -> list[Seen]:
    seen = []
    with path.open("rb") as file:
        for record in FastwarcIterator(file, parse_http=True):
            status = record.http_headers.status_code if record.http_headers else None
            seen.append(
                Seen(
                    str(record.record_type).rpartition(".")[2],
                    record.headers.get("WARC-Target-URI") or "",
                    status or 0,
                    record.reader.read(),
                    record.headers.get("WARC-Truncated") or "",
                )
            )
    return seen


def by_warcio(path: Path) -> list[Seen]:
    unpacker = zstandard.ZstdDecompressor()
    with path.open("rb") as file:
        stream = io.BytesIO(unpacker.stream_reader(file, read_across_frames=True).read())
    return [
        Seen(
            record.rec_type,
            record.rec_headers.get_header("WARC-Target-URI") or "",
            int(record.http_headers.get_statuscode()) if record.rec_type == "response" else 0,
            record.content_stream().read(),
            record.rec_headers.get_header("WARC-Truncated") or "",
        )
        for record in WarcioIterator(stream)
    ]


def check_with_other_tools(folder: Path) -> None:
    """Every segment is whole and says the same to FastWARC, to warcio and to us."""
    for path in folder.glob("*.warc.zst"):
        ours = read_records(path.read_bytes())
        fast, slow = by_fastwarc(path), by_warcio(path)
        assert fast == slow
        assert [record.type for record in ours] == [seen.type for seen in fast]
        assert fast[0].type == "warcinfo"
        assert "warcinfo" not in {seen.type for seen in fast[1:]}


class FolderBackend:
    """A folder of a test, filled by a limit on the size of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, writer: str = "w", segment_bytes: int = SEGMENT_BYTES) -> Archive:
        return open_archive(str(self.folder), writer, segment_bytes)

    def damage_tail(self, segment: str, size: int) -> None:
        path = self.folder / segment
        before = path.stat().st_size
        os.truncate(path, min(size, before))
        with path.open("ab") as file:
            file.write(Random(size).randbytes(max(0, size - before)))

    def full(self) -> AbstractContextManager[None]:
        largest = max(path.stat().st_size for path in self.folder.iterdir())
        return file_size_limit(largest + 100)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow over it; a write that does is cut short."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[FolderBackend]:
    backend = FolderBackend(tmp_path / "archive")
    yield backend
    if backend.folder.exists():
        check_with_other_tools(backend.folder)


class TestFolderArchive(SharingConformance, InPlaceConformance):
    """The contract, on a real folder; each test ends with a look by other tools."""


async def test_other_tools_read_what_we_keep(backend: FolderBackend) -> None:
    """D8: urls, status, bodies, cuts and the number of records, over several segments."""
    rng = Random(8)
    maker = FrameMaker(ManualClock(), rng)
    exchanges = [
        Exchange(
            f"http://site.example/page/{number}?q=ä",
            method=rng.choice(["GET", "POST"]),
            request_headers=[("User-Agent", "skep"), ("Cookie", "a=b")],
            request_body=rng.randbytes(number % 3),
            status=rng.choice([200, 301, 404, 503]),
            reason="Because",
            response_headers=[
                ("Content-Type", "text/html; charset=utf-8"),
                ("Content-Encoding", "br"),
                ("Transfer-Encoding", "chunked"),
                ("Content-Length", "7"),
            ],
            body=rng.randbytes(rng.choice([0, 1, 700, 200_000])),
            address="2001:db8::1",
            cut=rng.choice([None, None, *Cut]),
        )
        for number in range(60)
    ]
    archive = backend.make(segment_bytes=1_000_000)
    await archive.open(committed())
    for start in range(0, len(exchanges), 7):
        await archive.append([maker.exchange_frames(e) for e in exchanges[start : start + 7]])
    await archive.close()

    paths = sorted(backend.folder.glob("*.warc.zst"))
    assert len(paths) > 2
    expected = [seen for exchange in exchanges for seen in expected_of(exchange)]
    for read in (by_fastwarc, by_warcio):
        seen = [record for path in paths for record in read(path) if record.type != "warcinfo"]
        assert seen == expected


def expected_of(exchange: Exchange) -> list[Seen]:
    return [
        Seen("response", exchange.uri, exchange.status, bytes(exchange.body), exchange.cut or ""),
        Seen("request", exchange.uri, 0, bytes(exchange.request_body), ""),
    ]


async def test_callers_share_a_sync(
    backend: FolderBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred callers at once cost a few syncs, not two hundred."""
    syncs = count_syncs(monkeypatch)
    archive = backend.make()
    await archive.open(committed())
    groups = [pages(1, seed=number) for number in range(200)]
    await asyncio.gather(*(archive.append(group) for group in groups))
    await archive.close()
    assert 1 <= len(syncs) < 50
    assert threading.get_ident() not in syncs, "the event loop never waits for the disk"


def count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each sync, as they happen."""
    real, syncs = segments._fdatasync, []

    def counting(file: int) -> None:
        syncs.append(threading.get_ident())
        real(file)

    monkeypatch.setattr(segments, "_fdatasync", counting)
    return syncs


async def test_a_failed_sync_closes_the_segment(
    backend: FolderBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After EIO a later sync of the same file proves nothing, so a new file is begun."""
    archive = backend.make()
    await archive.open(committed())
    before, during, after = pages(3), pages(3, seed=2), pages(3, seed=3)
    places = await archive.append(before)
    with monkeypatch.context() as patch:
        patch.setattr(segments, "_fdatasync", fail_to_sync)
        with pytest.raises(Unavailable) as caught:
            await archive.append(during)
    assert not isinstance(caught.value, DiskFull)
    later = await archive.append(after)
    assert later[0].segment > places[0].segment
    await read_all_back(archive, places + later, before + after)
    first = backend.folder / places[0].segment
    assert first.stat().st_size == places[-1].offset + len(before[-1])
    await archive.close()


def fail_to_sync(file: int) -> None:
    raise OSError(5, "Input/output error")


async def test_a_full_disk_can_stop_a_rotation(backend: FolderBackend) -> None:
    """Fault 25: no half-made segment is left when there is no room for a new one."""
    archive = backend.make(segment_bytes=1)
    await archive.open(committed())
    blobs = pages(2)
    places = await archive.append(blobs[:1])
    with file_size_limit(10), pytest.raises(DiskFull):
        await archive.append(blobs[1:])
    assert await archive.usage() == (1, places[0].offset + len(blobs[0]))
    places += await archive.append(blobs[1:])
    await read_all_back(archive, places, blobs)
    assert (await archive.usage())[0] == 2
    await archive.close()


async def test_a_link_is_not_followed(backend: FolderBackend, tmp_path: Path) -> None:
    """Fault 51: a link with the name of a segment leads nowhere."""
    (tmp_path / "secret").write_bytes(b"secret")
    backend.folder.mkdir()
    archive = backend.make()
    link = backend.folder / "x-00000001.warc.zst"
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(NotFound):
        await archive.read(link.name, 0, 6)
    link.unlink()


async def test_a_damaged_first_record_is_said(tmp_path: Path) -> None:
    backend = FolderBackend(tmp_path / "damaged")
    (place,) = await put_and_close(backend, pages(1))
    backend.damage_tail(place.segment, 20)
    with pytest.raises(ConfigurationError, match=place.segment):
        await backend.make().open(committed())


async def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="file"):
        await FolderArchive(tmp_path / "file" / "archive", "w", 1).open(committed())


@pytest.mark.parametrize("form", ["{0}", "file://{0}", "file://localhost{0}", "file:{0}"])
async def test_a_path_or_a_file_url_opens_a_folder(tmp_path: Path, form: str) -> None:
    archive = open_archive(form.format(tmp_path / "a"), "w", SEGMENT_BYTES)
    assert archive.describe() == str(tmp_path / "a")


@pytest.mark.parametrize("url", ["", "gs://bucket/x", "http://h/x", "file://host/x", "file:"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_archive(url, "w", SEGMENT_BYTES)
