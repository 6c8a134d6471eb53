"""The http downloader against real servers: what a user of a run can rely on."""

from __future__ import annotations

import asyncio
import base64
import gzip
import zlib
from collections.abc import Callable
from random import Random

import brotli  # type: ignore[import-untyped]  # the package ships no types
import pytest
import zstandard

from skep.archive.frames import read_records, split_request, split_response
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.testing import servers
from skep.testing.clock import ManualClock
from skep.testing.grounds.downloaders import LOOPBACK, PAGE, Open, body_of, raw_deflate
from skep.testing.servers.hostile_http import (
    Asked,
    HostileConnection,
    HostileServer,
    answer,
    fetch,
    fetch_all,
    redirects,
    says,
    sends,
)


async def test_a_page_from_nginx(opened: Open, nginx_server: servers.Nginx) -> None:
    (nginx_server.root / "page.html").write_bytes(PAGE)
    fetched = await fetch(opened(), Work(7, f"{nginx_server.url}page.html"))
    outcome = fetched.outcome
    assert (outcome.id, outcome.failure, outcome.status) == (7, "", 200)
    assert (outcome.address, outcome.final_uri, outcome.detail) == ("127.0.0.1", "", "")
    assert outcome.length == len(fetched.frames)
    assert outcome.received > len(PAGE)
    assert outcome.sent > 50
    assert 0 < outcome.elapsed_us < 5_000_000
    response, request = read_records(fetched.frames)
    assert response.headers["WARC-Target-URI"] == f"{nginx_server.url}page.html"
    assert response.headers["WARC-IP-Address"] == "127.0.0.1"
    assert split_response(response).body == PAGE
    assert split_request(request).method == "GET"


async def test_connections_are_kept_and_used_again(opened: Open, server: HostileServer) -> None:
    downloader = opened()
    for number in range(20):
        assert (await fetch(downloader, Work(number, server.url("/page")))).outcome.status == 200
    assert server.connections == 1


async def test_a_connection_closed_at_rest_is_not_a_failure(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/last"] = sends(answer(b"bye"), then_close=True)
    downloader = opened()
    for number in range(10):
        outcome = (await fetch(downloader, Work(number, server.url("/last")))).outcome
        assert (outcome.failure, outcome.status) == ("", 200)
    assert server.connections == 10


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.ZstdCompressor().compress),
    "stacked": ("gzip, br", lambda data: brotli.compress(gzip.compress(data))),
}


@pytest.mark.parametrize("name", CODINGS)
async def test_codings_are_undone(name: str, opened: Open, server: HostileServer) -> None:
    value, encode = CODINGS[name]
    server.routes["/coded"] = says(encode(PAGE), headers=[("Content-Encoding", value)])
    fetched = await fetch(opened(), Work(1, server.url("/coded")))
    assert (fetched.outcome.failure, body_of(fetched)) == ("", PAGE)
    assert fetched.outcome.received < len(PAGE)
    assert server.asked[0].headers["accept-encoding"] == "gzip, deflate, br, zstd"


async def test_chunks_trailers_and_interim_answers(opened: Open, server: HostileServer) -> None:
    server.routes["/chunks"] = sends(
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Kept: yes\r\n\r\n"
        b"5\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: late\r\n\r\n"
    )
    fetched = await fetch(opened(), Work(1, server.url("/chunks")))
    status, headers, body = split_response(read_records(fetched.frames)[0])
    assert (status, body) == (200, b"hello world")
    names = [name for name, _ in headers]
    assert "X-Kept" in names
    assert "Link" not in names
    assert "X-Trailer" not in names


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", ("GET", b"")),
        (302, "POST", ("GET", b"")),
        (303, "POST", ("GET", b"")),
        (303, "PUT", ("GET", b"")),
        (307, "POST", ("POST", b"data")),
        (308, "POST", ("POST", b"data")),
        (301, "PUT", ("PUT", b"data")),
    ],
)
async def test_redirects_change_the_method_as_browsers_do(
    status: int, method: str, expected: tuple[str, bytes], opened: Open, server: HostileServer
) -> None:
    server.routes["/from"] = redirects("/page?x=1#part", status, body=b"moved")
    work = Work(1, server.url("/from"), method, {"Content-Type": "text/plain"}, b"data")
    outcome = (await fetch(opened(), work)).outcome
    assert (outcome.failure, outcome.status) == ("", 200)
    assert outcome.final_uri == server.url("/page?x=1")
    last = server.asked[-1]
    assert (last.method, last.body, last.target) == (*expected, "/page?x=1")
    assert ("content-type" in last.headers) == bool(expected[1])


async def test_head_stays_head_and_has_no_body(opened: Open, server: HostileServer) -> None:
    server.routes["/from"] = sends(
        b"HTTP/1.1 303 See\r\nLocation: page\r\nContent-Length: 7\r\n\r\n"
    )
    server.routes["/page"] = sends(b"HTTP/1.1 200 OK\r\nContent-Length: 8000\r\n\r\n")
    fetched = await fetch(opened(), Work(1, server.url("/from"), "HEAD"))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("", 200)
    assert [asked.method for asked in server.asked] == ["HEAD", "HEAD"]


async def test_redirects_end(opened: Open, server: HostileServer) -> None:
    server.routes["/loop"] = redirects("/loop")
    outcome = (await fetch(opened(redirects=5), Work(1, server.url("/loop")))).outcome
    assert (outcome.failure, outcome.status) == ("content", 302)
    assert outcome.detail == "more than 5 redirects"
    assert len(server.asked) == 6


async def test_redirects_can_be_switched_off(opened: Open, server: HostileServer) -> None:
    server.routes["/from"] = redirects("/page")
    outcome = (await fetch(opened(redirects=0), Work(1, server.url("/from")))).outcome
    assert (outcome.failure, outcome.status, outcome.final_uri) == ("", 302, "")


async def test_the_deadline_covers_all_hops(opened: Open, server: HostileServer) -> None:
    async def slow_loop(_asked: Asked, line: HostileConnection) -> None:
        await asyncio.sleep(0.15)
        await line.send(answer(b"", 302, [("Location", "/slow")]))

    server.routes["/slow"] = slow_loop
    outcome = (await fetch(opened(time_limit=0.5), Work(1, server.url("/slow")))).outcome
    assert outcome.failure == "timeout"
    assert 450_000 < outcome.elapsed_us < 1_500_000


async def test_secrets_stay_in_their_origin(opened: Open, server: HostileServer) -> None:
    """Fault 56: leaks 0 across ports and hosts; nothing is lost within an origin."""
    secrets = {"Authorization": "Bearer s3cret", "Cookie": "sid=s3cret", "X-Mine": "ok"}
    async with HostileServer({"/page": says(PAGE)}) as other:
        server.routes["/inside"] = redirects("/page")
        server.routes["/port"] = redirects(other.url("/page"))
        server.routes["/host"] = redirects(f"http://localhost:{server.port}/page")
        for path in ("/inside", "/port", "/host"):
            outcome = (await fetch(opened(), Work(1, server.url(path), headers=secrets))).outcome
            assert (outcome.failure, outcome.status) == ("", 200)
    inside, host = (asked.headers for asked in server.asked if asked.target == "/page")
    assert (inside["authorization"], inside["cookie"]) == ("Bearer s3cret", "sid=s3cret")
    for leaked in (other.asked[0].headers, host):
        assert "s3cret" not in str(leaked)
        assert leaked["x-mine"] == "ok"


async def test_a_login_in_the_url_is_basic_auth_and_leaves_no_trace(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/from"] = redirects("/page")
    uri = server.url("/from").replace("http://", "http://a%3Ann:p%40ss@")
    fetched = await fetch(opened(), Work(1, uri))
    token = base64.b64encode(b"a:nn:p@ss").decode()
    assert [a.headers["authorization"] for a in server.asked] == [f"Basic {token}"] * 2
    assert fetched.outcome.final_uri == server.url("/page")
    kept = b"".join(r.block + str(r.headers).encode() for r in read_records(fetched.frames))
    for trace in (b"nn:", b"p@ss", b"p%40ss", token.encode()):
        assert trace not in kept


async def test_a_login_does_not_follow_to_another_origin(
    opened: Open, server: HostileServer
) -> None:
    async with HostileServer({"/page": says(PAGE)}) as other:
        server.routes["/from"] = redirects(other.url("/page"))
        uri = server.url("/from").replace("http://", "http://ann:secret@")
        assert (await fetch(opened(), Work(1, uri))).outcome.status == 200
    assert "authorization" in server.asked[0].headers
    assert "authorization" not in other.asked[0].headers


async def test_each_run_has_cookies_of_its_own(opened: Open, server: HostileServer) -> None:
    """A3: what one run is given, another never sends."""
    server.routes["/set"] = says(b"", headers=[("Set-Cookie", "who=first; Path=/")])
    first, second, without = opened(), opened(), opened(cookies=False)
    for downloader in (first, without):
        await fetch(downloader, Work(1, server.url("/set")))
    for downloader in (first, second, without):
        await fetch(downloader, Work(2, server.url("/page")))
    seen = [a.headers.get("cookie") for a in server.asked if a.target == "/page"]
    assert seen == ["who=first", None, None]


async def test_a_body_is_posted_as_it_is(opened: Open, server: HostileServer) -> None:
    body = bytes(range(256)) * 40
    work = Work(1, server.url("/page"), "post", {"Content-Type": "application/x-own"}, body)
    fetched = await fetch(opened(), work)
    asked = server.asked[0]
    assert (asked.method, asked.body) == ("POST", body)
    assert asked.headers["content-type"] == "application/x-own"
    assert "expect" not in asked.headers
    archived = split_request(read_records(fetched.frames)[1])
    assert (archived.method, archived.body) == ("POST", body)


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "OPTIONS"])
async def test_other_methods(method: str, opened: Open, server: HostileServer) -> None:
    downloader = opened()
    await fetch(downloader, Work(1, server.url("/page"), method))
    await fetch(downloader, Work(2, server.url("/page")))
    assert [asked.method for asked in server.asked] == [method, "GET"]


async def test_headers_of_request_win_over_those_of_the_run(
    opened: Open, server: HostileServer
) -> None:
    downloader = opened(headers={"X-A": "run", "user-agent": "Mine/1"})
    await fetch(downloader, Work(1, server.url("/page"), headers={"x-a": "request"}))
    await fetch(downloader, Work(2, server.url("/page")))
    assert [asked.headers["x-a"] for asked in server.asked] == ["request", "run"]
    assert {asked.headers["user-agent"] for asked in server.asked} == {"Mine/1"}


async def test_statuses(opened: Open, server: HostileServer) -> None:
    server.routes["/gone"] = says(b"gone for good", 410)
    server.routes["/fine"] = says(b"an odd place", 404)
    downloader = opened(accept_status=(404,))
    gone = await fetch(downloader, Work(1, server.url("/gone")))
    fine = await fetch(downloader, Work(2, server.url("/fine")))
    assert (gone.outcome.failure, gone.outcome.status) == ("status", 410)
    assert gone.outcome.detail == "the server answered 410 Status"
    assert body_of(gone) == b"gone for good"
    assert "WARC-Truncated" not in read_records(gone.frames)[0].headers
    assert (fine.outcome.failure, fine.outcome.status) == ("", 404)


async def test_retry_after_in_both_forms(server: HostileServer) -> None:
    clock = ManualClock()
    clock.set_wall(1_700_000_000.0)
    date = "Tue, 14 Nov 2023 22:15:20 GMT"  # two minutes later
    for path, value in (("/seconds", "17"), ("/date", date), ("/junk", "soon")):
        server.routes[path] = says(b"", 429, [("Retry-After", value)])
    server.routes["/plain"] = says(b"", 503)
    kind = HttpKind(clock, Random(1), EgressPolicy(allow=LOOPBACK))
    downloader = kind.open("run", RunSettings())
    paths = ("/seconds", "/date", "/junk", "/plain")
    works = [Work(number, server.url(path)) for number, path in enumerate(paths)]
    waits = [r.outcome.retry_after for r in await fetch_all(downloader, works)]
    await downloader.close()
    assert waits == [17.0, 120.0, None, None]
