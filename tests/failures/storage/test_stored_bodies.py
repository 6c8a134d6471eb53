"""Stored bodies that are small in the archive and huge when they are read."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from time import perf_counter

import aiohttp
import brotli  # type: ignore[import-untyped]  # the package ships no types
import psutil
import pytest

from skep.archive.frame_boundaries import frame_end
from skep.archive.frames import Exchange, FrameMaker
from skep.archive.record_reader import StoredBody, without_secrets
from skep.archive.records import HOP, read_records, split_response
from skep.errors import Malformed, NotFound, TooLarge
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.testing.fleet import tell
from skep.testing.grounds.centers import Caller, HandAgent, works_of
from skep.testing.processes import CenterProcess

MEGABYTE = 2**20
#: Unpacked; some kilobytes in the archive.
HUGE = 250 * MEGABYTE


ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "br": partial(brotli.compress, quality=3),
}


def frames(body: bytes, uri: str = "http://127.0.0.1/x", coding: str = "") -> bytes:
    maker = FrameMaker(SystemClock(), Random(1))
    headers = [("Content-Encoding", coding)] if coding else []
    body = ENCODE[coding](body)
    return maker.exchange_frames(
        Exchange(uri, status=200, response_headers=headers, body=body, encoded=bool(coding))
    )


async def reported(center: CenterProcess, admin: Caller, body_limit: int, coding: str) -> HandAgent:
    """An agent has reported a body of 250 MB as what request 1 brought."""
    run = {"settings": {"body_limit": body_limit}}
    assert (await admin.put("/api/v1/runs/r", run)).status == 200
    assert (await admin.post("/requestqueue/r", ["http://127.0.0.1:9/x"])).status == 202
    agent = HandAgent(admin, "a1")
    agent.caller = Caller(admin._session, center.url, center.agent_token.read_text().strip())
    data = await asyncio.to_thread(frames, bytes(HUGE), coding=coding)
    await agent.register()
    (block,) = await agent.lease(wait=10.0)
    (work,) = works_of(block)
    outcome = Outcome(work.id, status=200, received=HUGE, length=len(data))
    report = BlockReport(block.id, block.token, [outcome], frames=data)
    assert await agent.report(report) == ["stored"]
    return agent


async def longest_beat(agent: HandAgent, until: asyncio.Task[int]) -> float:
    longest = 0.0
    while not until.done():
        began = perf_counter()
        await agent.heartbeat()
        longest = max(longest, perf_counter() - began)
        await asyncio.sleep(0.01)
    return longest


async def size_of(admin: Caller) -> int:
    """Bytes of the body, read as they come."""
    size = 0
    url = f"{admin.url}/api/v1/requests/1/body"
    async with admin._session.get(url, headers=admin.headers) as answer:
        assert (answer.status, answer.content_length) == (200, HUGE)
        async for part in answer.content.iter_chunked(MEGABYTE):
            size += len(part)
    return size


@pytest.mark.parametrize("coding", list(ENCODE))
@pytest.mark.parametrize("body_limit", [10 * MEGABYTE, pytest.param(2**32, marks=pytest.mark.slow)])
async def test_a_body_that_unpacks_to_250_megabytes(
    tmp_path: Path, body_limit: int, coding: str
) -> None:
    """S9, H6, fault 57: over the run's limit it is refused; below it is streamed, off the loop;
    the same with a coding on it."""
    with CenterProcess(tmp_path / "center") as center:
        process = psutil.Process(center.pid)
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            admin = Caller(session, center.url, center.admin_token)
            agent = await reported(center, admin, body_limit, coding)
            before = process.memory_info().rss
            if body_limit < HUGE:
                answer = await admin.get("/api/v1/requests/1/body")
                assert (answer.status, answer.problem().code) == (413, "too_large")
                assert str(body_limit) in answer.problem().detail
                assert coding or str(HUGE) in answer.problem().detail
                return
            reading = asyncio.create_task(size_of(admin))
            longest = await longest_beat(agent, reading)
            assert await reading == HUGE
            grown = process.memory_info().rss - before
    tell("57", body=HUGE, grown=grown, longest_beat=longest)
    assert grown < 64 * MEGABYTE
    assert longest < 1.0


def whole(data: bytes) -> bytes:
    return b"".join(iter(StoredBody(data, 10**6).piece, b""))


def test_pieces_make_the_body() -> None:
    """S9: whatever its size, and only the first response."""
    body = Random(3).randbytes(300_000)
    stored = StoredBody(frames(body) + frames(b"other"), len(body))
    assert b"".join(iter(stored.piece, b"")) == body
    assert StoredBody(frames(b""), 0).piece() == b""
    with pytest.raises(TooLarge, match="300000 bytes"):
        StoredBody(frames(body), len(body) - 1)


def test_a_record_is_masked_piece_by_piece() -> None:
    """S9: 250 MB that a viewer asks for with a login in the URI take no memory either. The
    memory is measured by the kernel, in a process of its own."""
    program = (
        "import resource\n"
        "from random import Random\n"
        "from skep.archive.frames import Exchange, FrameMaker\n"
        "from skep.archive.record_reader import StoredBody, without_secrets\n"
        "from skep.runtime.clock import SystemClock\n"
        "import sys\n"
        "data = sys.stdin.buffer.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "shown = without_secrets(data)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        "assert b'C4nary' not in shown and StoredBody(shown, 2**40).size == 250 * 2**20\n"
    )
    data = frames(bytes(HUGE), "http://u:C4nary@127.0.0.1/x")
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True
    )
    assert int(done.stdout) < 32 * 1024, "kilobytes"


def test_damaged_and_foreign_frames() -> None:
    """S9: an error that says so, and no crash."""
    good = frames(b"body" * 1000)
    with pytest.raises(NotFound):
        StoredBody(b"", 10)
    end = frame_end(good)
    for bad in (good[: end - 1], b"nonsense", good[: end - 1] + b"!" + good[end:]):
        with pytest.raises(Malformed):
            whole(bad)


def test_records_for_viewers_hold_nothing_that_was_sent() -> None:
    """S4: no `request` record, and a URI without its login; the body is the same."""
    data = frames(b"page", "http://u:C4nary@127.0.0.1/x?token=C4nary")
    shown = without_secrets(data)
    stored = StoredBody(shown, 100)
    assert stored.piece() == b"page"
    plain = frames(b"page")
    assert plain.startswith(without_secrets(plain)), "what has no secret stays as it is"


def test_redirects_for_viewers_hold_no_secret_of_a_url() -> None:
    """H6, S4: a redirect names the next URL in a header; the digest of the body stays right."""
    maker = FrameMaker(SystemClock(), Random(1))
    to = [("Link", "</x?token=C4nary>"), ("Location", "/x?token=C4nary")]
    long = [("A", "x" * 900)] * 270
    data = frames(b"page") + maker.exchange_frames(
        Exchange("http://h/", "GET", long, status=302, response_headers=to, body=b"moved", hop=1)
    )
    page, hop = read_records(without_secrets(data))
    status, headers, body = split_response(hop)
    assert (status, body, page.type, hop.headers[HOP]) == (302, b"moved", "response", "1")
    assert dict(headers)["Location"] == "/x?token=***"
    assert hop.headers["WARC-Payload-Digest"].endswith(sha256(b"moved").hexdigest())


def test_headers_of_pages_for_viewers_are_harmless_ones() -> None:
    """S4: cookies and unknown headers keep their names alone; continued lines too."""
    maker = FrameMaker(SystemClock(), Random(1))
    told = [
        ("Content-Type", "text/html"),
        ("Set-Cookie", "sid=C4nary; Path=/"),
        ("set-cookie", "other=C4nary"),
        ("X-Api-Hint", "C4nary"),
        ("Server", "nginx"),
    ]
    data = maker.exchange_frames(
        Exchange("http://h/", "GET", (), status=200, response_headers=told, body=b"page")
    )
    shown = without_secrets(data)
    (page,) = read_records(shown)
    status, headers, body = split_response(page)
    assert (status, body, StoredBody(shown, 10).piece()) == (200, b"page", b"page")
    assert dict(headers) | {"Content-Length": ""} == {
        "Content-Type": "text/html",
        "Set-Cookie": "***",
        "set-cookie": "***",
        "X-Api-Hint": "***",
        "Server": "nginx",
        "Content-Length": "",
    }
