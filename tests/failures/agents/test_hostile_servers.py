"""Servers that mean harm, or do not know better: each download ends, in the right class."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from random import Random

import brotli  # type: ignore[import-untyped]  # the package ships no types
import pytest
import zstandard

from skep.archive.frames import read_records, split_response
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.testing.servers import Nginx
from skep.testing.servers.hostile_http import (
    HostileServer,
    Route,
    fetch,
    fetch_all,
    redirects,
    repeats,
    says,
    sends,
    silence,
)

LIMIT = 100_000
DEADLINE = 1.0
OK = b"HTTP/1.1 200 OK\r\n"
MIB = 2**20


def coded(name: str, body: bytes) -> Route:
    return says(body, headers=[("Content-Encoding", name)])


def gzip_bomb(mebibytes: int) -> bytes:
    """Zeros; the same flushed block again and again, so that making it costs nothing."""
    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = engine.compress(bytes(MIB)) + engine.flush(zlib.Z_FULL_FLUSH)
    block = engine.compress(bytes(MIB)) + engine.flush(zlib.Z_FULL_FLUSH)
    return first + block * (mebibytes - 1)


def brotli_bomb(mebibytes: int) -> bytes:
    engine = brotli.Compressor(quality=1)
    return b"".join([*(engine.process(bytes(MIB)) for _ in range(mebibytes)), engine.finish()])


def zstd_bomb(mebibytes: int) -> bytes:
    engine = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([*(engine.compress(bytes(MIB)) for _ in range(mebibytes)), engine.flush()])


BEHAVIOURS: dict[str, tuple[Route, str]] = {
    "slowloris headers": (repeats(OK, b"X: y\r\n", pause=0.05), "timeout"),
    "endless headers": (repeats(OK, b"X-Again: and again\r\n" * 500), "limit"),
    "100k headers": (sends(OK + b"A: b\r\n" * 100_000 + b"\r\n"), "limit"),
    "one huge header": (sends(OK + b"A: " + b"b" * 400_000 + b"\r\n\r\n"), "limit"),
    "just too many header bytes": (
        sends(OK + (b"A: " + b"b" * 90 + b"\r\n") * 2900 + b"Content-Length: 0\r\n\r\n"),
        "limit",
    ),
    "endless body": (repeats(OK + b"\r\n", b"z" * 65_536), "limit"),
    "endless chunks": (
        repeats(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"z" * 4096 + b"\r\n"),
        "limit",
    ),
    "slow drip body": (repeats(OK + b"\r\n", b"z", pause=0.02), "timeout"),
    "closes without a word": (sends(b"", then_close=True), "network"),
    "never answers": (silence, "timeout"),
    "reset in the body": (
        sends(OK + b"Content-Length: 500\r\n\r\nabc", then_reset=True),
        "network",
    ),
    "less than it said": (
        sends(OK + b"Content-Length: 500\r\n\r\nabc", then_close=True),
        "network",
    ),
    "bad length": (sends(OK + b"Content-Length: many\r\n\r\nabc", then_close=True), "content"),
    "bad chunk": (
        sends(OK + b"Transfer-Encoding: chunked\r\n\r\nwrong\r\nabc\r\n0\r\n\r\n"),
        "content",
    ),
    "redirect loop": (redirects("/redirect%20loop"), "content"),
    "redirect to file": (redirects("file:///etc/passwd"), "content"),
    "redirect to data": (redirects("data:text/html,hello"), "content"),
    "redirect to gopher": (redirects("gopher://127.0.0.1:6379/_INFO"), "content"),
    "garbage status line": (sends(b"\x00\xffhello there\r\n\r\n", then_close=True), "content"),
    "NUL in headers": (sends(OK + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n"), "content"),
    "gzip bomb": (coded("gzip", gzip_bomb(64)), "limit"),
    "br bomb": (coded("br", brotli_bomb(64)), "limit"),
    "zstd bomb": (coded("zstd", zstd_bomb(64)), "limit"),
    "nested gzip bomb": (coded("gzip, gzip", gzip.compress(gzip_bomb(64))), "limit"),
    "too many codings": (coded("gzip, gzip, gzip, gzip", b"abc"), "content"),
    "deflate garbage": (coded("deflate", b"\xff" * 5000), "content"),
    "gzip cut short": (coded("gzip", gzip.compress(b"x" * 9999)[:-4]), "content"),
}


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    routes = {f"/{name.replace(' ', '%20')}": route for name, (route, _) in BEHAVIOURS.items()}
    async with HostileServer(routes | {"/fine": says(b"all is well")}) as server:
        yield server


@pytest.fixture
async def downloader() -> AsyncIterator[HttpDownloader]:
    kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=("127.0.0.0/8",)))
    settings = RunSettings(time_limit=DEADLINE, body_limit=LIMIT, host_concurrency=64)
    opened = kind.open("hostile", settings)
    yield opened
    await opened.close()


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_each_behaviour_ends_in_its_class(
    name: str, server: HostileServer, downloader: HttpDownloader
) -> None:
    """Fault 58: after the deadline no slot is taken, and the next download works."""
    path = f"/{name.replace(' ', '%20')}"
    async with asyncio.timeout(DEADLINE * 4):
        fetched = await fetch(downloader, Work(1, server.url(path)))
    assert (fetched.outcome.failure, bool(fetched.outcome.detail)) == (BEHAVIOURS[name][1], True)
    assert "\n" not in fetched.outcome.detail
    assert downloader.active == 0
    assert (await fetch(downloader, Work(2, server.url("/fine")))).outcome.failure == ""


async def test_all_of_them_at_once_leave_no_slot_taken(
    server: HostileServer, downloader: HttpDownloader, nginx_server: Nginx
) -> None:
    """Fault 58: hung slots after the deadline 0, and honest pages of the same run arrive.

    The honest ones come from a server in another process: the hostile one shares this
    test's event loop and is busy with its bombs.
    """
    (nginx_server.root / "honest").write_bytes(b"all is well")
    paths = [f"/{name.replace(' ', '%20')}" for name in BEHAVIOURS]
    hostile = [Work(i, server.url(path)) for i, path in enumerate(paths)] * 3
    honest = [Work(1000 + i, f"{nginx_server.url}honest") for i in range(9)]
    async with asyncio.timeout(10):
        results = await fetch_all(downloader, [*hostile, *honest])
    assert downloader.active == 0
    assert all(result.outcome.failure for result in results[: len(hostile)])
    assert [r.outcome.failure for r in results[len(hostile) :]] == [""] * len(honest)
    assert (await fetch(downloader, Work(999, server.url("/fine")))).outcome.failure == ""


async def test_more_than_it_said_is_not_taken_for_the_next_answer(
    server: HostileServer, downloader: HttpDownloader
) -> None:
    smuggled = OK + b"Content-Length: 3\r\n\r\nabc" + OK + b"Content-Length: 4\r\n\r\nevil"
    server.routes["/more"] = sends(smuggled)
    first = await fetch(downloader, Work(1, server.url("/more")))
    second = await fetch(downloader, Work(2, server.url("/fine")))
    bodies = [split_response(read_records(r.frames)[0]).body for r in (first, second)]
    assert bodies == [b"abc", b"all is well"]


async def test_what_came_before_the_cut_is_kept_and_marked(
    server: HostileServer, downloader: HttpDownloader
) -> None:
    fetched = await fetch(downloader, Work(1, server.url("/endless%20body")))
    response = read_records(fetched.frames)[0]
    assert response.headers["WARC-Truncated"] == "length"
    assert split_response(response).body == b"z" * LIMIT
    assert fetched.outcome.length == len(fetched.frames)


async def test_an_early_cut_spares_the_server(downloader: HttpDownloader) -> None:
    """A server offers 1 GB; it gets rid of little more than what socket buffers hold."""
    offer = repeats(OK + b"Content-Length: 1000000000\r\n\r\n", b"z" * 65_536, times=15_259)
    async with HostileServer({"/big": offer}) as server:
        fetched = await fetch(downloader, Work(1, server.url("/big")))
        async with asyncio.timeout(5):
            await server.idle()
    assert fetched.outcome.failure == "limit"
    assert LIMIT <= fetched.outcome.received < 10 * LIMIT
    assert server.sent["/big"] < 20 * MIB


BOMBS = {"gzip": gzip_bomb, "br": brotli_bomb, "zstd": zstd_bomb}

MEASURE = """
import asyncio, random, sys
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.testing.servers.hostile_http import fetch

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

async def main(origin):
    kind = HttpKind(SystemClock(), random.Random(1), EgressPolicy(allow=("127.0.0.0/8",)))
    downloader = kind.open("bombs", RunSettings())
    assert not (await fetch(downloader, Work(1, origin + "/fine"))).outcome.failure
    before = peak()
    outcome = (await fetch(downloader, Work(2, origin + "/bomb"))).outcome
    print(outcome.failure, peak() - before)
    await downloader.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("name", [*BOMBS, "gzip, gzip"])
async def test_a_bomb_adds_little_memory(name: str, server: HostileServer) -> None:
    """Fault 57: with the usual limit of 10 MiB, peak RSS grows by 64 MiB at most."""
    bomb = BOMBS.get(name, gzip_bomb)(512)
    server.routes["/bomb"] = coded(name, gzip.compress(bomb) if "," in name else bomb)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MEASURE, server.origin, stdout=subprocess.PIPE
    )
    out, _ = await child.communicate()
    failure, kibibytes = out.decode().split()
    assert failure == "limit"
    assert int(kibibytes) <= 64 * 1024
