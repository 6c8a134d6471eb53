"""The http downloader beside the real `curl`, on the same URLs: same answers, same requests.

Each case is asked of one server by both. Where they differ on purpose the test says why.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import brotli  # type: ignore[import-untyped]  # the package ships no types
import pytest
import zstandard

from skep.archive.frames import read_records
from skep.model.request import Work
from skep.testing.grounds.curl_program import curl
from skep.testing.grounds.downloaders import PAGE, Open, body_of, raw_deflate
from skep.testing.servers.hostile_http import (
    Asked,
    HostileConnection,
    HostileServer,
    answer,
    fetch,
    redirects,
    repeats,
    says,
    sends,
)

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(autouse=True)
def _beside_curl(real_curl: None) -> None:
    """Every test here needs the program."""


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer({"/page": says(PAGE), "/": says(b"root")}) as server:
        yield server


def since(server: HostileServer, start: int) -> list[tuple[str, str, bytes]]:
    """What was asked; escapes in capitals, since old curls write small ones."""
    return [
        (asked.method, re.sub("%..", lambda found: found[0].upper(), asked.target), asked.body)
        for asked in server.asked[start:]
    ]


METHODS = {"GET": (), "HEAD": ("-I",), "POST": ("--data", "data"), "PUT": ("-T",)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_with_every_method(
    status: int, method: str, opened: Open, server: HostileServer, tmp_path: Path
) -> None:
    async def bare(asked: Asked, line: HostileConnection) -> None:
        """A HEAD has no body, whatever it says."""
        moved = answer(b"moved", status, [("Location", "/to")])
        head, end, body = (moved if asked.target == "/from" else answer(PAGE)).partition(
            b"\r\n\r\n"
        )
        await line.send(head + end + (b"" if asked.method == "HEAD" else body))

    server.routes |= {"/from": bare, "/to": bare}
    arguments = list(METHODS[method])
    if method == "PUT":
        (tmp_path / "data").write_bytes(b"data")
        arguments.append(str(tmp_path / "data"))
    theirs = await curl(*arguments, urls=[server.url("/from")])
    half = len(server.asked)
    body = b"data" if method in {"POST", "PUT"} else b""
    ours = await fetch(opened(), Work(1, server.url("/from"), method, body=body))
    assert since(server, half) == since(server, 0)[:half]
    assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status)
    assert ours.outcome.final_uri == theirs.url
    if method != "HEAD":
        assert body_of(ours) == theirs.body == PAGE


LOCATIONS = [
    "page", "/page", "/page?a=b&c", "?q=1", "./x/../page", "../../page", "/a/./b/../c/",
    "//{host}/page", "http://{host}/page", "HTTP://{host}/page", "http://{host}",
    "http://{host}?q=1", " /page ", "/with space", "/a%20b", "/%zz", "/caf\u00e9",
    "/\u6c34?x=\u6c34", "/a;b=c", "/a|b", "http://user:pw@{host}/page", "/page#frag?x", "//{host}",
    "/a//b", "page?u=http://x.test/../y",
]  # fmt: skip


@pytest.mark.parametrize("location", LOCATIONS)
async def test_locations_of_every_kind(location: str, opened: Open, server: HostileServer) -> None:
    where = location.format(host=f"127.0.0.1:{server.port}")
    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + where.encode()
    server.routes["/dir/from"] = sends(head + b"\r\n\r\n")
    theirs = await curl(urls=[server.url("/dir/from")])
    half = len(server.asked)
    ours = await fetch(opened(accept_status=(404,)), Work(1, server.url("/dir/from")))
    assert since(server, half) == since(server, 0)[:half]
    assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status)
    logins = [asked.headers.get("authorization") for asked in server.asked]
    assert logins[:half] == logins[half:]


async def test_a_redirect_without_location_and_other_threes(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/none"] = says(b"stay", 302)
    server.routes["/empty"] = says(b"stay", 302, [("Location", "")])
    for path in ("/none", "/empty"):
        theirs = await curl(urls=[server.url(path)])
        ours = await fetch(opened(), Work(1, server.url(path)))
        assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status), path
        assert body_of(ours) == theirs.body == b"stay", path


async def test_where_redirects_differ_from_curl(opened: Open, server: HostileServer) -> None:
    """As browsers: 300 is for people to choose, and a fragment alone is the same page."""
    server.routes["/choices"] = says(b"pick", 300, [("Location", "/page")])
    server.routes["/dir/same"] = redirects("#top")
    choices = await fetch(opened(), Work(1, server.url("/choices")))
    same = await fetch(opened(redirects=2), Work(2, server.url("/dir/same")))
    assert (choices.outcome.status, body_of(choices)) == (300, b"pick")
    assert (same.outcome.failure, server.paths()[1:]) == ("content", ["/dir/same"] * 3)


async def test_loops_end(opened: Open, server: HostileServer) -> None:
    server.routes |= {"/a": redirects("/b"), "/b": redirects("/a")}
    theirs = await curl(urls=[server.url("/a")])
    half = len(server.asked)
    ours = await fetch(opened(redirects=10), Work(1, server.url("/a")))
    assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status)
    assert ours.outcome.failure == "content"
    assert since(server, half) == since(server, 0)[:half]
    assert half == 11


COOKIES = {
    "plain": "a=1",
    "path": "a=1; Path=/page",
    "other path": "a=1; Path=/elsewhere",
    "path prefix": "a=1; Path=/pa",
    "foreign domain": "a=1; Domain=example.com",
    "own domain": "a=1; Domain=127.0.0.1",
    "secure": "a=1; Path=/; Secure",
    "gone by age": "a=1; Path=/; Max-Age=0",
    "gone by date": "a=1; Path=/; Expires=Thu, 01 Jan 2015 00:00:00 GMT",
    "to come": "a=1; Path=/; Expires=Thu, 01 Jan 2099 00:00:00 GMT",
    "broken date": "a=1; Path=/; Expires=whenever",
    "http only": "a=1; Path=/; HttpOnly; SameSite=Strict",
    "host prefix without secure": "__Host-a=1; Path=/",
    "empty": "a=; Path=/",
    "quoted": 'a="b c"; Path=/',
    "control character": "a=b\x01c; Path=/",
    "large": f"a={'x' * 5000}; Path=/",
}


@pytest.mark.parametrize("name", COOKIES)
@pytest.mark.parametrize("by_redirect", [False, True], ids=["answer", "redirect"])
async def test_cookies(name: str, by_redirect: bool, opened: Open, server: HostileServer) -> None:
    """What one answer sets, the next request sends, over redirects too."""
    headers = [("Set-Cookie", COOKIES[name]), ("Location", "/page")]
    server.routes["/set"] = says(b"", 302, headers) if by_redirect else says(b"", 200, headers[:1])
    paths = ["/set", "/page", "/page/below", "/"]
    await curl(urls=[server.url(path) for path in paths])
    half = len(server.asked)
    downloader = opened()
    for number, path in enumerate(paths):
        await fetch(downloader, Work(number, server.url(path)))
    cookies = [asked.headers.get("cookie") for asked in server.asked]
    assert cookies[half:] == cookies[:half]


async def test_a_cookie_is_replaced_and_taken_back(opened: Open, server: HostileServer) -> None:
    first, second = ("a=1; Path=/", "b=2; Path=/"), ("a=3; Path=/", "b=; Path=/; Max-Age=0")
    server.routes["/one"] = says(headers=[("Set-Cookie", text) for text in first])
    server.routes["/two"] = says(headers=[("Set-Cookie", text) for text in second])
    paths = ["/one", "/page", "/two", "/page"]
    await curl(urls=[server.url(path) for path in paths])
    downloader = opened()
    for number, path in enumerate(paths):
        await fetch(downloader, Work(number, server.url(path)))
    sent = [asked.headers.get("cookie", "") for asked in server.asked if asked.target == "/page"]
    assert [sorted(text.split("; ")) for text in sent] == [["a=1", "b=2"], ["a=3"]] * 2


async def test_cookies_stay_with_their_host(opened: Open, server: HostileServer) -> None:
    server.routes["/set"] = says(headers=[("Set-Cookie", "a=1; Path=/")])
    other = f"http://localhost:{server.port}"
    urls = [server.url("/set"), f"{other}/page", server.url("/page"), f"{other}/set"]
    await curl("-4", urls=urls)
    downloader = opened()
    for number, url in enumerate(urls):
        await fetch(downloader, Work(number, url))
    assert [asked.headers.get("cookie") for asked in server.asked] == [None, None, "a=1", None] * 2


zstd = zstandard.ZstdCompressor().compress
CODINGS: dict[str, tuple[str, bytes]] = {
    "gzip": ("gzip", gzip.compress(PAGE)),
    "x-gzip": ("x-gzip", gzip.compress(PAGE)),
    "upper case": ("GZIP", gzip.compress(PAGE)),
    "deflate": ("deflate", zlib.compress(PAGE)),
    "raw deflate": ("deflate", raw_deflate(PAGE)),
    "br": ("br", brotli.compress(PAGE)),
    "zstd": ("zstd", zstd(PAGE)),
    "identity": ("identity", PAGE),
    "gzip in br": ("gzip, br", brotli.compress(gzip.compress(PAGE))),
    "zstd in deflate in gzip": ("zstd, deflate, gzip", gzip.compress(zlib.compress(zstd(PAGE)))),
    "empty": ("gzip", b""),
    "says gzip, is plain": ("gzip", PAGE),
    "says br, is gzip": ("br", gzip.compress(PAGE)),
    "says zstd, is plain": ("zstd", PAGE),
    "gzip with a wrong sum": ("gzip", gzip.compress(PAGE)[:-8] + b"\0" * 8),
}


@pytest.mark.parametrize("name", CODINGS)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_codings(name: str, chunked: bool, opened: Open, server: HostileServer) -> None:
    value, body = CODINGS[name]
    if chunked:
        pieces = [body[at : at + 100] for at in range(0, len(body), 100)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        head = f"Content-Encoding: {value}\r\nTransfer-Encoding: chunked\r\n\r\n"
        server.routes["/coded"] = sends(OK + head.encode() + framed)
    else:
        server.routes["/coded"] = says(body, headers=[("Content-Encoding", value)])
    theirs = await curl("--compressed", urls=[server.url("/coded")])
    ours = await fetch(opened(), Work(1, server.url("/coded")))
    assert ours.outcome.failure == theirs.failure
    if not theirs.failure:
        assert body_of(ours) == theirs.body


async def test_a_coding_without_its_end_is_not_a_whole_page(
    opened: Open, server: HostileServer
) -> None:
    """curl takes it as if it were whole; an archive should know better."""
    server.routes["/cut"] = says(gzip.compress(PAGE)[:-12], headers=[("Content-Encoding", "gzip")])
    assert (await curl("--compressed", urls=[server.url("/cut")])).failure == ""
    ours = await fetch(opened(), Work(1, server.url("/cut")))
    assert (ours.outcome.failure, ours.outcome.detail) == (
        "content",
        "the gzip stream is incomplete",
    )


ANSWERS: dict[str, tuple[bytes, bool]] = {
    "chunks and trailers": (
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;e\r\nd\r\n0\r\nX: 1\r\n\r\n",
        False,
    ),
    "until it closes": (b"\r\nabcde", True),
    "less than it said": (b"Content-Length: 500\r\n\r\nabc", True),
    "more than it said": (b"Content-Length: 3\r\n\r\nabcdef", True),
    "chunks cut off": (b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", True),
    "no last chunk": (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", True),
    "length twice, the same": (b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", False),
    "negative length": (b"Content-Length: -3\r\n\r\nabc", True),
    "chunked and length": (
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        False,
    ),
    "folded header": (b"X-A: b\r\n c\r\nContent-Length: 3\r\n\r\nabc", False),
    "no reason": (b"Content-Length: 3\r\n\r\nabc", False),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_framing(name: str, opened: Open, server: HostileServer) -> None:
    rest, closes = ANSWERS[name]
    start = b"HTTP/1.1 200\r\n" if name == "no reason" else OK
    server.routes["/framed"] = sends(start + rest, then_close=closes)
    theirs = await curl(urls=[server.url("/framed")])
    ours = await fetch(opened(), Work(1, server.url("/framed")))
    assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status)
    if not theirs.failure:
        assert body_of(ours) == theirs.body


BROKEN = {
    "a chunk that is none": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_framing_that_hides_another_answer(
    name: str, opened: Open, server: HostileServer
) -> None:
    """Refused as no proper HTTP; curls of some years ago believe the last length."""
    server.routes["/broken"] = sends(OK + BROKEN[name], then_close=True)
    ours = await fetch(opened(), Work(1, server.url("/broken")))
    assert (ours.outcome.failure, ours.outcome.status) == ("content", 200)
    assert ours.outcome.detail.startswith("not a valid HTTP response")


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_that_have_no_body(status: int, opened: Open, server: HostileServer) -> None:
    """Whatever length they announce, and the connection is fit for the next request."""
    head = f"HTTP/1.1 {status} X\r\nContent-Length: 500\r\nETag: a\r\n\r\n"
    server.routes["/bare"] = sends(head.encode())
    theirs = await curl(urls=[server.url("/bare"), server.url("/page")])
    downloader = opened()
    ours = await fetch(downloader, Work(1, server.url("/bare")))
    after = await fetch(downloader, Work(2, server.url("/page")))
    assert (ours.outcome.failure, ours.outcome.status, body_of(ours)) == ("", status, b"")
    assert body_of(after) == theirs.body == PAGE


@pytest.mark.parametrize("interim", ["100 Continue", "102 Processing", "103 Early Hints"])
async def test_interim_answers_before_the_answer_to_a_body(
    interim: str, opened: Open, server: HostileServer
) -> None:
    before = f"HTTP/1.1 {interim}\r\nX-I: 1\r\n\r\n".encode()
    server.routes["/post"] = sends(before * 3 + answer(PAGE))
    theirs = await curl("--data", "x", urls=[server.url("/post")])
    ours = await fetch(opened(), Work(1, server.url("/post"), "POST", body=b"x"))
    assert (ours.outcome.failure, ours.outcome.status) == ("", 200)
    assert body_of(ours) == theirs.body == PAGE
    assert b"X-I" not in read_records(ours.frames)[0].block


async def test_a_drip_that_is_too_slow(opened: Open, server: HostileServer) -> None:
    server.routes["/drip"] = repeats(OK + b"Content-Length: 1000\r\n\r\n", b"z", pause=0.02)
    theirs, ours = await asyncio.gather(
        curl(urls=[server.url("/drip")], seconds=0.5),
        fetch(opened(time_limit=0.5), Work(1, server.url("/drip"))),
    )
    assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status)
    assert ours.outcome.failure == "timeout"
    assert read_records(ours.frames)[0].headers["WARC-Truncated"] == "time"
    assert 0 < len(body_of(ours)) < 1000


async def test_ipv6(opened: Open) -> None:
    async with HostileServer({"/from": redirects("/page"), "/page": says(PAGE)}, host="::1") as six:
        theirs = await curl("-g", urls=[six.url("/from")])
        ours = await fetch(opened(), Work(1, six.url("/from")))
    assert body_of(ours) == theirs.body == PAGE
    assert (ours.outcome.final_uri, ours.outcome.address) == (theirs.url, "::1")
    hosts = {asked.headers["host"] for asked in six.asked}
    assert hosts == {f"[::1]:{six.port}"}
