"""Logins, TLS, HTTP/2 and large bodies: the http downloader beside the real `curl`."""

from __future__ import annotations

import asyncio
import hashlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from skep.archive.frames import read_records, split_response
from skep.model.request import Work
from skep.testing import servers
from skep.testing.grounds.curl_program import curl
from skep.testing.grounds.downloaders import PAGE, Open, body_of, http_downloaders
from skep.testing.needs import needs
from skep.testing.private import free_port
from skep.testing.servers.hostile_http import (
    Asked,
    HostileConnection,
    HostileServer,
    Route,
    answer,
    fetch,
    fetch_all,
    redirects,
    repeats,
)

MIB = 2**20


@pytest.fixture(autouse=True)
def _beside_curl(real_curl: None) -> None:
    """Every test here needs the program."""


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    async with http_downloaders(time_limit=10.0) as open_one:
        yield open_one


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer() as server:
        yield server


def with_login(url: str, login: str = "ann:p%40ss") -> str:
    return url.replace("://", f"://{login}@", 1)


# --- digest: the server checks every proof itself, and curl checks the server ---

REALM = "the hive"


def digest_route(algorithm: str = "MD5", extra: str = "") -> Route:
    """RFC 7616 with qop=auth, for `ann` with the password `p@ss`."""
    hashed = hashlib.md5 if algorithm == "MD5" else hashlib.sha256
    challenge = f'Digest realm="{REALM}", nonce="n1", qop="auth", algorithm={algorithm}, opaque="o"'

    def proof(asked: Asked, given: dict[str, str]) -> str:
        secret = hashed(f"ann:{REALM}:p@ss".encode()).hexdigest()
        what = hashed(f"{asked.method}:{asked.target}".encode()).hexdigest()
        text = f"{secret}:n1:{given.get('nc')}:{given.get('cnonce')}:auth:{what}"
        return hashed(text.encode()).hexdigest()

    async def route(asked: Asked, line: HostileConnection) -> None:
        given = dict(re.findall(r'(\w+)="?([^",]+)', asked.headers.get("authorization", "")))
        if given.get("response") == proof(asked, given):
            await line.send(answer(PAGE + asked.body, 200, [("X-Who", given["username"])]))
        else:
            headers = [("WWW-Authenticate", text) for text in (extra, challenge) if text]
            await line.send(answer(b"who are you?", 401, headers))

    return route


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
@pytest.mark.parametrize("extra", ["", 'Basic realm="x"'], ids=["alone", "beside basic"])
async def test_digest(
    algorithm: str, method: str, extra: str, opened: Open, server: HostileServer
) -> None:
    """A login in the URL is proven as `curl --anyauth` would."""
    server.routes["/in"] = digest_route(algorithm, extra)
    data = ("--data", "x=1") if method == "POST" else ()
    theirs = await curl("--anyauth", *data, urls=[with_login(server.url("/in"))])
    body = b"x=1" if data else b""
    ours = await fetch(opened(), Work(1, with_login(server.url("/in")), method, body=body))
    assert (theirs.status, theirs.body) == (200, PAGE + body)
    assert (ours.outcome.failure, ours.outcome.status) == ("", 200)
    assert body_of(ours) == theirs.body
    record = split_response(read_records(ours.frames)[0])
    names = [name.lower() for name, _ in record.headers]
    assert ("x-who" in names, "www-authenticate" in names) == (True, False)
    kept = b"".join(each.block for each in read_records(ours.frames))
    assert b"p@ss" not in kept
    assert b"Digest" not in kept


async def test_a_digest_that_is_refused_ends(opened: Open, server: HostileServer) -> None:
    server.routes["/in"] = digest_route()
    url = with_login(server.url("/in"), "ann:wrong")
    theirs = await curl("--anyauth", urls=[url])
    ours = await fetch(opened(), Work(1, url))
    assert (ours.outcome.status, body_of(ours)) == (theirs.status, theirs.body)
    assert (ours.outcome.failure, ours.outcome.status) == ("status", 401)
    assert len(server.asked) < 8


async def test_digest_over_redirects_stays_in_its_origin(
    opened: Open, server: HostileServer
) -> None:
    """Fault 56: the proof is made anew inside, and nothing of it leaves."""
    async with HostileServer({"/in": digest_route()}) as other:
        server.routes |= {"/in": digest_route(), "/from": redirects("/in")}
        inside = await fetch(opened(), Work(1, with_login(server.url("/from"))))
        server.routes["/out"] = redirects(other.url("/in"))
        outside = await fetch(opened(), Work(2, with_login(server.url("/out"))))
    assert (inside.outcome.status, body_of(inside)) == (200, PAGE)
    assert outside.outcome.status == 401
    assert [asked.headers.get("authorization") for asked in other.asked] == [None]


async def test_without_a_login_a_challenge_is_the_answer(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/in"] = digest_route()
    ours = await fetch(opened(accept_status=(401,)), Work(1, server.url("/in")))
    assert (ours.outcome.status, body_of(ours), len(server.asked)) == (401, b"who are you?", 1)


# --- nginx: basic logins, TLS from a test CA, HTTP/2 ---


class SecureNginx(servers.Nginx):
    """Over plain HTTP and, one port further, over TLS with HTTP/2."""

    backend = ""

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self.tls_port}/"

    def prepare(self, backend: str) -> None:
        """An authority, and a certificate that it has signed."""
        self.backend = backend
        self.tls_port, self.curt_port = free_port(), free_port()
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        new = ("req", *curve, "-nodes", "-subj")
        self._openssl(*new, "/CN=Test CA", "-x509", "-keyout", "ca.key", "-out", "ca.pem")
        self._openssl(*new, "/CN=127.0.0.1", "-keyout", "key.pem", "-out", "leaf.csr")
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        self._openssl("x509", "-req", "-in", "leaf.csr", *signing, "-out", "cert.pem")
        (self.folder / "users").write_text("ann:{PLAIN}p@ss\n")

    def _openssl(self, *arguments: str) -> None:
        needs("openssl")
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def _configuration(self, port: int) -> str:
        plain = super()._configuration(port)
        tls = (
            f"ssl_certificate {self.folder}/cert.pem; ssl_certificate_key {self.folder}/key.pem; "
            "add_header X-V $server_protocol; add_header X-Connection $connection; "
        )
        more = (
            f"listen 127.0.0.1:{self.tls_port} ssl http2; {tls}"
            f"location /private/ {{ auth_basic hive; auth_basic_user_file {self.folder}/users; }} "
            "location /reset { return 444; } "
            f"location /behind/ {{ proxy_pass {self.backend}; proxy_buffering off; }} "
        )
        curt = (
            f"listen 127.0.0.1:{self.curt_port} ssl http2; keepalive_requests 2; root {self.root};"
        )
        return plain.replace(f":{port};", f":{port}; {more}").replace(
            "server {", f"server {{ {curt} {tls} }}\nserver {{", 1
        )


@pytest.fixture
async def nginx(server: HostileServer) -> AsyncIterator[SecureNginx]:
    with started(server.origin) as nginx:
        yield nginx


def started(backend: str) -> SecureNginx:
    nginx = SecureNginx()
    nginx.prepare(backend)
    for name in ("page.html", "private/page.html"):
        (nginx.root / name).parent.mkdir(parents=True, exist_ok=True)
        (nginx.root / name).write_bytes(PAGE)
    return nginx


@pytest.mark.parametrize("login", ["ann:p%40ss", "ann:wrong", "nobody:x", ""])
async def test_basic(login: str, opened: Open, nginx: SecureNginx) -> None:
    for base in (nginx.url, nginx.tls_url):
        url = f"{base}private/page.html"
        url = with_login(url, login) if login else url
        theirs = await curl("--cacert", nginx.ca, urls=[url])
        ours = await fetch(opened(ca_file=nginx.ca), Work(1, url))
        assert (ours.outcome.status, body_of(ours)) == (theirs.status, theirs.body)
        assert ours.outcome.status == (200 if "p%40" in login else 401)


async def test_http2(opened: Open, nginx: SecureNginx) -> None:
    url = f"{nginx.tls_url}page.html"
    theirs = await curl("--cacert", nginx.ca, urls=[url])
    downloader = opened(ca_file=nginx.ca)
    results = await fetch_all(downloader, [Work(n, url) for n in range(30)])
    assert (theirs.version, theirs.body) == ("2", PAGE)
    for fetched in results:
        _, headers, body = split_response(read_records(fetched.frames)[0])
        assert (body, ("x-v", "HTTP/2.0") in headers) == (PAGE, True)
    head = await fetch(downloader, Work(40, url, "HEAD"))
    missing = await fetch(downloader, Work(41, f"{nginx.tls_url}none"))
    assert (head.outcome.failure, body_of(head)) == ("", b"")
    assert (missing.outcome.failure, missing.outcome.status) == ("status", 404)


async def test_http2_goes_on_after_goaway(opened: Open, nginx: SecureNginx) -> None:
    """nginx says GOAWAY after every second request of a connection: nothing is lost."""
    url = f"https://127.0.0.1:{nginx.curt_port}/page.html"
    downloader = opened(ca_file=nginx.ca, host_concurrency=4)
    results = await fetch_all(downloader, [Work(n, url) for n in range(40)])
    assert {(r.outcome.failure, r.outcome.status) for r in results} == {("", 200)}
    answers = [split_response(read_records(r.frames)[0]) for r in results]
    assert {answer.body for answer in answers} == {PAGE}
    assert all(("x-v", "HTTP/2.0") in answer.headers for answer in answers)
    assert len({dict(answer.headers)["x-connection"] for answer in answers}) >= 20


async def test_http2_streams_that_are_reset(
    opened: Open, nginx: SecureNginx, server: HostileServer
) -> None:
    """Before the head and in the middle of a body; the connection serves the next page."""

    async def breaks_off(_asked: Asked, line: HostileConnection) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"z" * 500)
        await asyncio.sleep(0.05)
        line.reset()

    server.routes["/behind/cut"] = breaks_off
    downloader = opened(ca_file=nginx.ca)
    for path in ("reset", "behind/cut"):
        theirs = await curl("--cacert", nginx.ca, urls=[f"{nginx.tls_url}{path}"])
        ours = await fetch(downloader, Work(1, f"{nginx.tls_url}{path}"))
        assert (ours.outcome.failure, ours.outcome.status) == (theirs.failure, theirs.status), path
        assert ours.outcome.failure == "network"
        fine = await fetch(downloader, Work(2, f"{nginx.tls_url}page.html"))
        assert body_of(fine) == PAGE


# --- bodies ---


async def test_a_body_of_100_mb_arrives_whole(opened: Open, nginx: SecureNginx) -> None:
    with (nginx.root / "large").open("wb") as file:
        for number in range(100):
            file.write(number.to_bytes(4, "big") * (MIB // 4))
    url = f"{nginx.url}large"
    theirs = await curl(urls=[url])
    ours = await fetch(opened(body_limit=128 * MIB, time_limit=30.0), Work(1, url))
    assert len(theirs.body) == 100 * MIB
    assert hashlib.sha256(body_of(ours)).digest() == hashlib.sha256(theirs.body).digest()


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

async def main(*urls):
    kind = HttpKind(SystemClock(), random.Random(1), EgressPolicy(allow=("127.0.0.0/8",)))
    downloader = kind.open("large", RunSettings())
    before = peak()
    for number, url in enumerate(urls * 3):
        assert (await fetch(downloader, Work(number, url))).outcome.failure == "limit"
    print(peak() - before)
    await downloader.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_large_and_endless_bodies_cost_no_more_than_the_limit(
    nginx: SecureNginx, server: HostileServer
) -> None:
    """Fault 57: with the usual limit of 10 MiB, peak memory grows by 64 MiB at most."""
    with (nginx.root / "large").open("wb") as file:
        file.truncate(1000 * MIB)
    server.routes["/endless"] = repeats(b"HTTP/1.1 200 OK\r\n\r\n", b"z" * 65_536)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEASURE, f"{nginx.url}large", server.url("/endless")),
        stdout=subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert int(out) <= 64 * 1024
