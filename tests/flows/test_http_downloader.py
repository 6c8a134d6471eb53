"""The http downloader against real servers: what a user of a run can rely on."""

from __future__ import annotations

import asyncio
import base64
import gzip
import shutil
import subprocess
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import brotli  # type: ignore[import-untyped]  # the package ships no types
import pytest
import zstandard

from skep.archive.frames import read_records, split_request, split_response
from skep.downloaders.egress import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.downloaders.ports import Fetched
from skep.downloaders.registry import kinds
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import EgressSettings
from skep.testing import servers
from skep.testing.clock import ManualClock
from skep.testing.hostile import (
    Asked,
    HostileServer,
    Line,
    answer,
    fetch,
    fetch_all,
    redirects,
    repeats,
    says,
    sends,
    silence,
)
from skep.testing.private import free_port

LOOPBACK = ("127.0.0.0/8", "::1/128")
PAGE = b"<title>A page</title>" + b"<p>with some text</p>" * 400
Open = Callable[..., HttpDownloader]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens downloaders that may talk to loopback, and closes them at the end."""
    made: list[HttpDownloader] = []

    def open_one(
        *, allow: tuple[str, ...] = LOOPBACK, ca_file: str = "", **settings: object
    ) -> HttpDownloader:
        kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=allow), ca_file=ca_file)
        chosen: dict[str, object] = {"time_limit": 5.0, "host_concurrency": 64} | settings
        made.append(kind.open(f"run-{len(made)}", RunSettings(**chosen)))  # type: ignore[arg-type]  # checked by msgspec
        return made[-1]

    yield open_one
    for downloader in made:
        await downloader.close()


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer({"/page": says(PAGE)}) as server:
        yield server


def body_of(fetched: Fetched) -> bytes:
    return split_response(read_records(fetched.frames)[0]).body


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


async def test_a_connection_closed_at_rest_is_no_failure(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/last"] = sends(answer(b"bye"), then_close=True)
    downloader = opened()
    for number in range(10):
        outcome = (await fetch(downloader, Work(number, server.url("/last")))).outcome
        assert (outcome.failure, outcome.status) == ("", 200)
    assert server.connections == 10


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(data) + engine.flush()


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
    async def slow_loop(_asked: Asked, line: Line) -> None:
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


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-A", "a\r\nX-B: b"), ("X-A", "a\nb"), ("X-A", "a\0b"), ("X A", "b"), ("X:", "b")],
)
async def test_header_injection_is_refused_and_nothing_is_sent(
    name: str, value: str, opened: Open, server: HostileServer
) -> None:
    work = Work(1, server.url("/page"), headers={name: value})
    outcome = (await fetch(opened(), work)).outcome
    assert outcome.failure == "content"
    assert "header" in outcome.detail
    assert server.asked == []


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://",
        "http://a b/",
        "nonsense",
        "",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http://a%00b:c@127.0.0.1/",
        "//127.0.0.1/",
        "http://good.test\\@127.0.0.1\\/",
    ],
)
async def test_what_is_no_http_uri_is_refused(uri: str, opened: Open) -> None:
    outcome = (await fetch(opened(), Work(1, uri))).outcome
    assert outcome.failure == "content"
    assert outcome.detail


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


async def test_ipv6(opened: Open) -> None:
    async with HostileServer({"/page": says(PAGE)}, host="::1") as server:
        outcome = (await fetch(opened(), Work(1, server.url("/page")))).outcome
    assert (outcome.failure, outcome.status, outcome.address) == ("", 200, "::1")


SPELLINGS = """
127.0.0.1 127.1 0x7f.1 2130706433 0177.0.0.1 0x7f000001 0.0.0.0 127.0.0.1. localhost LOCALHOST
①②⑦.0.0.1 127。0。0。1 [::ffff:127.0.0.1] [::127.0.0.1] [0:0:0:0:0:ffff:7f00:1]
"""


@pytest.mark.parametrize("host", SPELLINGS.split())
async def test_no_spelling_of_loopback_gets_past_the_policy(
    host: str, opened: Open, server: HostileServer
) -> None:
    """Fault 54: reached 0, directly and through a redirect."""
    uri = f"http://{host}:{server.port}/page"
    downloader = opened(allow=())
    outcome = (await fetch(downloader, Work(1, uri))).outcome
    assert outcome.failure in {"blocked", "network", "content"}
    assert server.asked == []
    if host == "127.0.0.1":
        assert outcome.failure == "blocked"
        assert outcome.detail == (
            "address 127.0.0.1 is not allowed (loopback); add it to egress.allow"
        )
        assert downloader.refused == 1


async def test_a_redirect_into_a_closed_network_is_blocked(opened: Open) -> None:
    """Fault 54: every hop is checked, not only the first."""
    async with HostileServer({"/page": says(PAGE)}, host="127.0.0.2") as inner:
        async with HostileServer({"/from": redirects(inner.url("/page"))}) as outer:
            downloader = opened(allow=("127.0.0.1/32",))
            outcome = (await fetch(downloader, Work(1, outer.url("/from")))).outcome
        assert (outcome.failure, outcome.final_uri) == ("blocked", inner.url("/page"))
        assert inner.asked == []


async def test_a_proxy_in_the_environment_is_not_used(
    opened: Open, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await fetch(opened(), Work(1, server.url("/page")))).outcome.status == 200


async def test_nobody_listens(opened: Open, unused_port: int) -> None:
    outcome = (await fetch(opened(), Work(1, f"http://127.0.0.1:{unused_port}/"))).outcome
    assert (outcome.failure, outcome.status) == ("network", 0)
    assert outcome.length == 0


async def test_a_name_that_does_not_exist(opened: Open) -> None:
    # A label of 64 characters can be no name, so that nobody needs to be asked.
    outcome = (await fetch(opened(), Work(1, f"http://{'a' * 64}.test/"))).outcome
    assert outcome.failure == "network"
    assert "resolve" in outcome.detail


@pytest.fixture
def unused_port() -> int:
    return free_port()


async def test_at_most_so_many_at_once_on_a_host(opened: Open, server: HostileServer) -> None:
    async def slow(_asked: Asked, line: Line) -> None:
        await asyncio.sleep(0.01)
        await line.send(answer(b"x"))

    server.routes["/slow"] = slow
    works = [Work(n, server.url("/slow")) for n in range(30)]
    results = await fetch_all(opened(host_concurrency=3), works)
    assert [r.outcome.failure for r in results] == [""] * 30
    assert server.most_busy == 3
    assert server.connections == 3


async def test_a_delay_between_two_starts_on_a_host(opened: Open, server: HostileServer) -> None:
    server.routes["/from"] = redirects("/page")
    works = [Work(n, server.url("/from" if n == 2 else "/page")) for n in range(4)]
    await fetch_all(opened(host_delay=0.1), works)
    times = [asked.at for asked in server.asked]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) == 4
    assert min(gaps) > 0.08


async def test_a_slow_host_does_not_hold_up_another(opened: Open, server: HostileServer) -> None:
    server.routes["/hang"] = silence
    downloader = opened(host_concurrency=2)
    stuck = [asyncio.ensure_future(fetch(downloader, Work(n, server.url("/hang"))))
             for n in range(4)]  # fmt: skip
    async with HostileServer({"/page": says(PAGE)}, host="127.0.0.3") as other:
        outcome = (await fetch(downloader, Work(9, other.url("/page")))).outcome
    assert outcome.status == 200
    await downloader.close()
    assert {(await each).outcome.failure for each in stuck} == {"lost"}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_close_ends_everything_and_leaks_nothing(server: HostileServer) -> None:
    server.routes["/hang"] = silence
    kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))
    # The executor of the loop opens nothing, but its first thread must not be counted.
    await asyncio.get_running_loop().run_in_executor(None, open_files)
    before = open_files() - 2 * server.connections
    for _ in range(3):
        downloader = kind.open("run", RunSettings(host_concurrency=4))
        await fetch(downloader, Work(0, server.url("/page")))
        works = [Work(n, server.url("/hang")) for n in range(8)]
        waiting = [asyncio.ensure_future(fetch(downloader, work)) for work in works]
        async with asyncio.timeout(5):
            while server.busy < 4:  # noqa: ASYNC110 - the server's counter is what is meant
                await asyncio.sleep(0.005)
        await downloader.close()
        assert downloader.active == 0
        assert {(await each).outcome.failure for each in waiting} == {"lost"}
        late = await fetch(downloader, Work(99, server.url("/page")))
        assert (late.outcome.failure, downloader.active) == ("lost", 0)
        await downloader.close()
        await server.disconnected()
    assert open_files() == before


class TlsNginx(servers.Nginx):
    """The same nginx with TLS and HTTP/2, and a certificate that nobody has signed."""

    def make_certificate(self) -> Path:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("openssl is not installed")
        names = "subjectAltName=IP:127.0.0.1"
        command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        files = ["-keyout", str(self.folder / "key.pem"), "-out", str(self.folder / "cert.pem")]
        subprocess.run(
            [*command, *files, "-subj", "/CN=127.0.0.1", "-addext", names],
            check=True, capture_output=True,
        )  # fmt: skip
        return self.folder / "cert.pem"

    def _configuration(self, port: int) -> str:
        plain = super()._configuration(port)
        keys = f"ssl_certificate {self.folder}/cert.pem; ssl_certificate_key {self.folder}/key.pem;"
        return plain.replace(
            f":{port};", f":{port} ssl http2; {keys} add_header X-V $server_protocol;"
        )


@pytest.fixture(scope="module")
def tls() -> Iterator[TlsNginx]:
    server = TlsNginx()
    server.make_certificate()
    with server:
        (server.root / "page.html").write_bytes(PAGE)
        yield server


async def test_an_unknown_certificate_is_refused(opened: Open, tls: TlsNginx) -> None:
    uri = f"https://127.0.0.1:{tls.port}/page.html"
    fetched = await fetch(opened(), Work(1, uri))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("network", 0)
    assert "certificate" in fetched.outcome.detail.lower()
    assert fetched.frames == b""


async def test_http2_with_a_known_certificate(opened: Open, tls: TlsNginx) -> None:
    uri = f"https://127.0.0.1:{tls.port}/page.html"
    downloader = opened(ca_file=str(tls.folder / "cert.pem"))
    results = await fetch_all(downloader, [Work(n, uri) for n in range(20)])
    assert {(r.outcome.failure, r.outcome.status) for r in results} == {("", 200)}
    for fetched in results:
        _, headers, body = split_response(read_records(fetched.frames)[0])
        assert body == PAGE
        assert ("x-v", "HTTP/2.0") in headers


async def test_a_name_that_the_certificate_does_not_hold_is_refused(
    opened: Open, tls: TlsNginx
) -> None:
    uri = f"https://localhost:{tls.port}/page.html"
    downloader = opened(ca_file=str(tls.folder / "cert.pem"))
    assert (await fetch(downloader, Work(1, uri))).outcome.failure == "network"


async def test_a_thousand_pages_once_each(opened: Open, server: HostileServer) -> None:
    works = [Work(n, server.url(f"/page?n={n}")) for n in range(1000)]
    results = await fetch_all(opened(), works)
    assert [r.outcome.id for r in results] == list(range(1000))
    assert {(r.outcome.failure, r.outcome.status) for r in results} == {("", 200)}
    assert sorted(server.paths()) == sorted(f"/page?n={n}" for n in range(1000))


async def test_a_long_body_does_not_hold_up_the_results_of_others(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/long"] = repeats(b"HTTP/1.1 200 OK\r\n\r\n", b"z" * 65_536)
    downloader = opened(body_limit=2**32, time_limit=30.0)
    long = asyncio.ensure_future(fetch(downloader, Work(0, server.url("/long"))))
    while not server.busy:  # noqa: ASYNC110 - the counter is what is meant
        await asyncio.sleep(0.005)
    async with asyncio.timeout(5):
        assert (await fetch(downloader, Work(1, server.url("/page")))).outcome.status == 200
    assert not long.done()
    await downloader.close()
    assert (await long).outcome.failure == "lost"


async def test_a_receiver_that_fails_costs_nobody_else_a_result(
    opened: Open, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_fetched: Fetched) -> None:
        raise ValueError("on purpose")

    downloader = opened()
    downloader.start(Work(1, server.url("/page")), fail)
    results = await fetch_all(downloader, [Work(n, server.url("/page")) for n in range(5)])
    assert [r.outcome.status for r in results] == [200] * 5
    while downloader.active:  # noqa: ASYNC110 - the counter is what is meant
        await asyncio.sleep(0.005)
    assert "on purpose" in caplog.text


async def test_a_thread_that_dies_gives_everything_back(
    opened: Open, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.routes["/hang"] = silence
    downloader = opened()
    waiting = asyncio.ensure_future(fetch(downloader, Work(1, server.url("/hang"))))
    while not server.busy:  # noqa: ASYNC110 - the counter is what is meant
        await asyncio.sleep(0.005)
    # The thread meets something in its inbox that is no request at all.
    downloader._engine._inbox.append(None)  # type: ignore[arg-type]  # on purpose
    late = await fetch(downloader, Work(2, server.url("/page")))
    assert ((await waiting).outcome.failure, late.outcome.failure) == ("lost", "lost")
    after = await fetch(downloader, Work(3, server.url("/page")))
    assert (after.outcome.failure, downloader.active) == ("lost", 0)
    assert "a download thread failed" in caplog.text


def test_the_registry_names_what_there_is() -> None:
    offered = kinds(SystemClock(), Random(1), EgressSettings(allow=LOOPBACK))
    web = ("http", "https")
    assert {name: kind.schemes for name, kind in offered.items()} == {"http": web, "curl": web}
