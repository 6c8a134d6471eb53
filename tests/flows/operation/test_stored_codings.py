"""Bodies stored as they were received: what is in a record, and every reader that decodes it."""

from __future__ import annotations

import asyncio
import gzip
import io
import subprocess
import sys
import warnings
import zlib
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from random import Random

import brotli  # type: ignore[import-untyped]  # the package ships no types
import msgspec
import pytest
import zstandard

from skep.agent.hosts.robots import Text, judge
from skep.archive.frames import Exchange, FrameMaker
from skep.archive.record_reader import StoredBody
from skep.archive.records import WarcRecord, read_records, split_response, split_stored
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Fetched
from skep.errors import Malformed, TooLarge
from skep.model.block import BlockReport
from skep.model.content_rules import ContentRules, ContentStep
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.spiders.driving.page_decoding import Unpacker
from skep.spiders.ports import Page, PageBlock
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.grounds.downloaders import LOOPBACK, PAGE, Open, body_of, raw_deflate
from skep.testing.servers.hostile_http import HostileServer, fetch, says
from skep.wire.messages import BODIES_HEADER, ENCODED

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it warns of itself
    from fastwarc.warc import ArchiveIterator, WarcRecordType

Encode = Callable[[bytes], bytes]
ZIPPED = gzip.compress(PAGE, mtime=0)
STORED: list[tuple[str, Encode]] = [
    ("gzip", gzip.compress),
    ("GZip", gzip.compress),
]
#: Tools for archives cannot decode these, or not all of them.
DECODED: list[tuple[str, Encode]] = [
    ("br", brotli.compress),
    ("zstd", zstandard.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("gzip, deflate", lambda data: zlib.compress(gzip.compress(data))),
    ("utf-8, gzip", gzip.compress),
]


async def page_with(server: HostileServer, opened: Open, name: str, body: bytes) -> Fetched:
    server.routes["/coded"] = says(body, headers=[("Content-Encoding", name), ("A", "b")])
    return await fetch(opened(), Work(1, server.url("/coded")))


@pytest.mark.parametrize(("name", "encode"), STORED)
async def test_a_body_is_stored_as_it_came(
    name: str, encode: Encode, opened: Open, server: HostileServer
) -> None:
    """H6: bytes, header and digest are those of the server; readers get the decoded page."""
    body = encode(PAGE)
    fetched = await page_with(server, opened, name, body)
    record = read_records(fetched.frames)[0]
    status, headers, stored = split_stored(record)
    assert (fetched.outcome.failure, status, stored) == ("", 200, body)
    assert {("Content-Encoding", name), ("Content-Length", str(len(body)))} < set(headers)
    assert record.headers["WARC-Payload-Digest"] == f"sha256:{sha256(body).hexdigest()}"
    assert all_readers(fetched) == [PAGE] * 5


def all_readers(fetched: Fetched) -> list[bytes]:
    """What each of ours, FastWARC and warcio make of it."""
    robots = judge(fetched)
    assert isinstance(robots, Text)
    response = Unpacker().response(Page(1, "http://h/", "done", 200, frames=fetched.frames))
    stored = StoredBody(fetched.frames, 10**6)
    assert stored.size == len(PAGE)
    seen = ArchiveIterator(
        io.BytesIO(fetched.frames), record_types=WarcRecordType.response, auto_decode="content"
    )
    return [
        body_of(fetched),
        robots.content,
        response.body,
        b"".join(iter(stored.piece, b"")),
        next(iter(seen)).reader.read(),
    ]


@pytest.mark.parametrize(("name", "encode"), DECODED)
async def test_what_tools_cannot_decode_is_stored_decoded(
    name: str, encode: Encode, opened: Open, server: HostileServer
) -> None:
    """H6: so that `warcio check` and replay tools read every record."""
    fetched = await page_with(server, opened, name, encode(PAGE))
    _, headers, stored = split_stored(read_records(fetched.frames)[0])
    assert stored == PAGE
    assert ("X-Archive-Orig-Content-Encoding", name) in headers
    assert all_readers(fetched) == [PAGE] * 5


async def test_warcio_checks_and_decodes_every_coding(
    opened: Open, server: HostileServer, tmp_path: Path
) -> None:
    """H6: the digests of stored bodies, of whatever coding they were."""
    frames = b""
    for name, encode in (*STORED, *DECODED):
        frames += (await page_with(server, opened, name, encode(PAGE))).frames
    path = tmp_path / "all.warc"
    unpacker = zstandard.ZstdDecompressor()
    path.write_bytes(unpacker.stream_reader(frames, read_across_frames=True).read())
    command = [sys.executable, "-m", "warcio.cli", "check", "-v", str(path)]
    said = await asyncio.to_thread(subprocess.check_output, command, text=True)
    assert said.count("digest pass") == len(STORED) + len(DECODED)


async def test_bodies_that_are_cut_or_wrong_are_not_stored_with_a_coding(
    opened: Open, server: HostileServer
) -> None:
    """H6, H7, A5: a part of a stream, what is not the coding it says, and what rules cut."""
    server.routes["/coded"] = says(ZIPPED, headers=[("Content-Encoding", "gzip")])
    cut = await fetch(opened(body_limit=1000), Work(1, server.url("/coded")))
    assert stored_of(cut) == ("limit", PAGE[:1000])
    rules = ContentRules((ContentStep(first=10),))
    ruled = await fetch(opened(content=rules), Work(1, server.url("/coded")))
    assert stored_of(ruled) == ("", PAGE[:10])
    wrong = await page_with(server, opened, "gzip", b"not gzip")
    assert stored_of(wrong) == ("content", b"not gzip")
    empty = await page_with(server, opened, "gzip", b"")
    assert stored_of(empty) == ("", b"")


def stored_of(fetched: Fetched) -> tuple[str, bytes]:
    _, headers, body = split_stored(read_records(fetched.frames)[0])
    assert "Content-Encoding" not in dict(headers)
    assert body_of(fetched) == body
    return fetched.outcome.failure, body


async def test_an_older_center_gets_decoded_bodies(server: HostileServer) -> None:
    """H6: it would hand them out as they are. What the center says holds at once."""
    decodes = [False]
    policy = EgressPolicy(allow=LOOPBACK)
    clock, rng = SystemClock(), Random(1)
    kind = HttpKind(clock, rng, policy, as_received=lambda: decodes[0])
    downloader = kind.open("r", RunSettings())
    server.routes["/coded"] = says(ZIPPED, headers=[("Content-Encoding", "gzip")])
    try:
        older = await fetch(downloader, Work(1, server.url("/coded")))
        decodes[0] = True
        newer = await fetch(downloader, Work(1, server.url("/coded")))
    finally:
        await downloader.close()
    assert stored_of(older) == ("", PAGE)
    assert split_stored(read_records(newer.frames)[0]).body != PAGE


def encoded_record(body: bytes, name: str = "gzip") -> bytes:
    headers = [("Content-Type", "text/html"), ("Content-Encoding", name)]
    exchange = Exchange("http://h/", status=200, response_headers=headers, body=body, encoded=True)
    return FrameMaker(SystemClock(), Random(1)).exchange_frames(exchange)


def stored_record(body: bytes, name: str = "gzip") -> WarcRecord:
    return read_records(encoded_record(body, name))[0]


BOMB = bytes(50_000_000)


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("gzip", gzip.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.compress),
        ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
    ],
)
def test_stored_bombs_meet_the_limit(name: str, encode: Encode) -> None:
    """H6, S9: whatever an agent has sent."""
    frames = encoded_record(encode(BOMB), name)
    assert len(frames) < 60_000
    with pytest.raises(TooLarge):
        StoredBody(frames, 10**6)
    with pytest.raises(TooLarge):
        split_response(read_records(frames)[0], 10**6)


@pytest.mark.parametrize("body", [b"not gzip", ZIPPED[:-1]], ids=["other", "cut short"])
def test_a_stored_body_that_cannot_be_decoded_is_damage(body: bytes) -> None:
    """H6: agents store no such body with a coding."""
    with pytest.raises(Malformed, match="cannot be decoded"):
        StoredBody(encoded_record(body), 10**6)
    with pytest.raises(Malformed, match="cannot be decoded"):
        split_response(stored_record(body))


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "center") as running:
        yield running


async def reported(center: RunningCenter) -> None:
    """A page whose body is stored as received."""
    await center.open_run("r")
    await center.put("r", ["http://h/"])
    agent = center.hand_agent()
    rules = await agent.register()
    assert rules.encoded_bodies
    await center.dispatched()
    (block,) = await agent.lease()
    (work,) = works_of(block)
    frames = encoded_record(ZIPPED)
    outcome = Outcome(work.id, "", 200, length=len(frames))
    assert await agent.report(BlockReport(block.id, block.token, [outcome], frames=frames)) == [
        "stored"
    ]


async def test_the_api_decodes(center: RunningCenter) -> None:
    """H6: the body is decoded and its size is told; the record is as it lies in the archive."""
    await reported(center)
    body = await center.admin.get("/api/v1/requests/1/body")
    assert (body.status, body.content) == (200, PAGE)
    assert body.headers["Content-Length"] == str(len(PAGE))
    record = await center.admin.get("/api/v1/requests/1/record")
    assert split_stored(read_records(record.content)[0]).body == ZIPPED


class ReadAnswer(msgspec.Struct):
    """What tests read of pages."""

    blocks: list[PageBlock]


@pytest.mark.parametrize("says_so", [False, True], ids=["older", "decodes"])
@pytest.mark.parametrize("way", ["read", "pages"])
async def test_programs_that_do_not_decode_get_decoded_records(
    center: RunningCenter, says_so: bool, way: str
) -> None:
    """H6: an older spider, or a caller's own tools, over the routes that give records."""
    await reported(center)
    headers = {"Accept": "application/msgpack"}
    headers |= {BODIES_HEADER: ENCODED} if says_so else {}
    if way == "read":
        answer = await center.admin.send("POST", "/requestqueue/r/read", b"{}", {
            **headers, "Content-Type": "application/json",
        })  # fmt: skip
    else:
        answer = await center.admin.send("GET", "/api/v1/runs/r/pages?unread=true", None, headers)
    (block,) = answer.read(ReadAnswer).blocks
    frames = block.pages[0].frames
    record = read_records(frames)[0]
    stored = split_stored(record)
    assert stored.body == (ZIPPED if says_so else PAGE)
    assert ("Content-Encoding" in dict(stored.headers)) is says_so
    assert record.headers["WARC-Payload-Digest"].endswith(sha256(stored.body).hexdigest())
    assert split_response(record).body == PAGE
    assert len(read_records(frames)) == 2
