"""Proxies and redials (A6), on real proxies: tinyproxy for HTTP, microsocks for SOCKS5."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any

import pytest

from skep.archive.frames import read_records, split_response
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.model.proxies import ExitRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.testing import servers
from skep.testing.private import free_port
from skep.testing.servers.hostile_http import (
    Asked,
    HostileConnection,
    HostileServer,
    answer,
    fetch,
    fetch_all,
    says,
)

LOOPBACK = ("127.0.0.0/8", "::1/128")
USER, PASSWORD = "bee", "honey-and-wax"


class Ground:
    """A kind of downloader, and the downloaders that a test opened with it."""

    def __init__(self) -> None:
        self.opened: list[HttpDownloader] = []
        self.kinds: list[HttpKind] = []
        self.redials = 0
        self.dial = asyncio.Event()

    def open(self, *proxies: str, allow: tuple[str, ...] = LOOPBACK, **more: Any) -> HttpDownloader:
        kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=allow))
        settings = RunSettings(
            time_limit=5.0, host_concurrency=64, exits=ExitRules(proxies=proxies, **more)
        )
        if more.get("redial"):
            kind.redial = self._dialled
        self.kinds.append(kind)
        self.opened.append(kind.open("run", settings))
        return self.opened[-1]

    def _dialled(self) -> None:
        self.redials += 1
        self.dial.set()


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    made = Ground()
    yield made
    for downloader in made.opened:
        await downloader.close()


@pytest.fixture
async def site() -> AsyncIterator[HostileServer]:
    async with HostileServer({"/page": says(b"a page")}) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[servers.Tinyproxy]:
    with servers.tinyproxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def guarded() -> Iterator[servers.Tinyproxy]:
    with servers.tinyproxy(user=USER, password=PASSWORD) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def socks() -> Iterator[servers.Microsocks]:
    with servers.microsocks(user=USER, password=PASSWORD) as proxy:
        yield proxy


def blocks_until(count: int, blocked: bytes) -> Callable[[Asked, HostileConnection], Any]:
    """A page that is refused `count` times and then given."""
    left = count

    async def route(_asked: Asked, line: HostileConnection) -> None:
        nonlocal left
        left -= 1
        await line.send(blocked if left >= 0 else answer(b"a page"))

    return route


async def test_an_http_proxy_with_a_login(
    ground: Ground, site: HostileServer, guarded: servers.Tinyproxy
) -> None:
    """A6: HTTP with credentials; and the proxy's address is not the server's in the archive."""
    fetched = await fetch(ground.open(guarded.url), Work(1, site.url("/page")))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("", 200)
    assert "tinyproxy" in site.asked[0].headers["via"]
    assert "proxy-authorization" not in site.asked[0].headers
    for record in read_records(fetched.frames):
        assert "WARC-IP-Address" not in dict(record.headers)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_a_socks_proxy_with_a_login(
    ground: Ground, site: HostileServer, socks: servers.Microsocks, scheme: str
) -> None:
    """A6: SOCKS5, names resolved here or there."""
    url = socks.url.replace("socks5h", scheme)
    # Only the proxy knows that nothing listens on ::1 and tries the next address.
    host = {"socks5": "127.0.0.1", "socks5h": "localhost"}[scheme]
    fetched = await fetch(ground.open(url), Work(1, f"http://{host}:{site.port}/page"))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("", 200)
    assert len(site.asked) == 1


@pytest.mark.parametrize("kind", ["guarded", "socks"])
async def test_a_wrong_password_is_told_and_never_the_password(
    ground: Ground,
    site: HostileServer,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """A6: the proxy rests; neither the outcome nor the log says what was tried."""
    proxy = request.getfixturevalue(kind)
    wrong = proxy.url.replace(PASSWORD, "mistyped")
    # Through a tunnel, since tinyproxy answers plain requests as if it were the server.
    target = site.url("/page").replace("http:", "https:")
    with caplog.at_level(logging.DEBUG):
        fetched = await fetch(ground.open(wrong), Work(1, target))
    assert fetched.outcome.failure == "network"
    assert f"127.0.0.1:{proxy.port} refuses our credentials" in fetched.outcome.detail
    assert site.connections == 0
    for text in (fetched.outcome.detail, caplog.text, repr(fetched)):
        assert "mistyped" not in text
        assert USER not in text
    assert b"mistyped" not in fetched.frames
    assert ground.kinds[0].tally.counts.rested == 1


async def test_a_missing_password_is_told(
    ground: Ground, site: HostileServer, guarded: servers.Tinyproxy
) -> None:
    """A6: 407 is the proxy's answer, not the page."""
    bare = f"http://127.0.0.1:{guarded.port}"
    fetched = await fetch(ground.open(bare), Work(1, site.url("/page")))
    assert (fetched.outcome.failure, fetched.frames) == ("network", b"")
    assert "refuses our credentials" in fetched.outcome.detail


async def test_a_dead_proxy_rests_and_the_next_one_is_taken(
    ground: Ground, site: HostileServer, plain: servers.Tinyproxy
) -> None:
    """A6: two of three proxies are not there; every page comes all the same."""
    dead = [f"http://127.0.0.1:{free_port()}", f"socks5h://127.0.0.1:{free_port()}"]
    downloader = ground.open(*dead, plain.url)
    fetched = await fetch_all(downloader, [Work(n, site.url("/page")) for n in range(20)])
    assert [one.outcome.status for one in fetched] == [200] * 20
    assert ground.kinds[0].tally.counts.rested <= 2
    assert all("via" in asked.headers for asked in site.asked)


async def test_when_no_proxy_works_nothing_goes_out_directly(
    ground: Ground, site: HostileServer
) -> None:
    """A6: a run with proxies is never seen without one."""
    downloader = ground.open(f"http://127.0.0.1:{free_port()}")
    for number in range(3):
        fetched = await fetch(downloader, Work(number, site.url("/page")))
        assert fetched.outcome.failure == "network"
    assert "none of 1 proxies works" in fetched.outcome.detail
    assert site.connections == 0


async def test_a_proxy_that_takes_its_time_to_die(ground: Ground, site: HostileServer) -> None:
    """A6: it cuts a download off, cuts its second try off, and is gone at the third. All of that
    is one death, so that a try is left for the exit that works."""
    cut = 0

    async def dying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal cut
        cut += 1
        await reader.readuntil(b"\r\n\r\n")
        if cut == 2:
            server.close()
        writer.transport.abort()

    server = await asyncio.start_server(dying, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with servers.microsocks() as other:
        downloader = ground.open(other.url, f"http://127.0.0.1:{port}", tries=3)
        fetched = await fetch(downloader, Work(1, site.url("/page")))
    assert (fetched.outcome.failure, fetched.outcome.status, cut) == ("", 200, 2)


async def test_a_proxy_that_dies_in_the_middle(ground: Ground, site: HostileServer) -> None:
    """A6: it takes the download with it, which is made again on another exit."""
    began = asyncio.Event()

    async def slow(_asked: Asked, line: HostileConnection) -> None:
        if not began.is_set():
            began.set()
            await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na p")
            await line.reader.read()
        else:
            await line.send(answer(b"a page"))

    site.routes["/slow"] = slow
    with servers.microsocks() as one, servers.tinyproxy() as other:
        first = asyncio.ensure_future(
            fetch(ground.open(one.url, other.url), Work(1, site.url("/slow")))
        )
        await began.wait()
        before = "via" in site.asked[0].headers
        (other if before else one).kill()
        fetched = await first
    assert (fetched.outcome.failure, fetched.outcome.status) == ("", 200)
    assert ("via" in site.asked[-1].headers) is not before
    assert ground.kinds[0].tally.counts.rested == 1


@pytest.mark.parametrize(
    "blocked",
    [
        answer(b"please wait", 503),
        answer(b"fine", headers=[("X-Blocked", "yes")]),
        answer(b"<h1>Are you a ROBOT?</h1>"),
    ],
    ids=["status", "header", "body"],
)
async def test_a_pattern_switches_and_the_request_is_tried_again(
    ground: Ground,
    site: HostileServer,
    plain: servers.Tinyproxy,
    socks: servers.Microsocks,
    blocked: bytes,
) -> None:
    """A6: by status, headers or body; on the new exit."""
    site.routes["/wall"] = blocks_until(1, blocked)
    pattern = r"^HTTP 503|(?i)x-blocked: yes|are you a robot"
    downloader = ground.open(plain.url, socks.url, switch_when=pattern)
    fetched = await fetch(downloader, Work(1, site.url("/wall")))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("", 200)
    assert ["via" in asked.headers for asked in site.asked] in ([True, False], [False, True])
    assert ground.kinds[0].tally.counts.switches == 1


async def test_tries_are_bounded_and_the_page_is_kept(
    ground: Ground, site: HostileServer, plain: servers.Tinyproxy, socks: servers.Microsocks
) -> None:
    """A6: after the last try it is `blocked`, with the page that said so, whole."""
    site.routes["/wall"] = says(b"captcha")
    downloader = ground.open(plain.url, socks.url, switch_when="captcha", tries=4)
    fetched = await fetch(downloader, Work(1, site.url("/wall")))
    assert fetched.outcome.failure == "blocked"
    assert "4 tries" in fetched.outcome.detail
    assert len(site.asked) == 4
    record = read_records(fetched.frames)[0]
    assert split_response(record).body == b"captcha"
    assert "WARC-Truncated" not in dict(record.headers)


async def test_after_its_requests_the_next_proxy_is_used_and_cookies_stay(
    ground: Ground, site: HostileServer, plain: servers.Tinyproxy, socks: servers.Microsocks
) -> None:
    """A6: after n requests. A run without rules for sessions has one jar."""
    site.routes["/page"] = says(b"a page", headers=[("Set-Cookie", "id=7; Path=/")])
    downloader = ground.open(plain.url, socks.url, switch_after=2)
    for number in range(8):
        await fetch(downloader, Work(number, site.url("/page")))
    ways = ["via" in asked.headers for asked in site.asked]
    assert ways in ([True, True, False, False] * 2, [False, False, True, True] * 2)
    assert [asked.headers.get("cookie", "") for asked in site.asked] == ["", *["id=7"] * 7]


async def test_two_logins_at_one_proxy_never_share_a_tunnel(
    ground: Ground, site: HostileServer
) -> None:
    """A6: many services give an address by user name."""
    tunnels: list[tuple[str, int]] = []

    async def proxied(asked: Asked, line: HostileConnection) -> None:
        tunnels.append((asked.headers["proxy-authorization"], line.number))
        await line.send(answer(b"through"))

    async with HostileServer({"http://site.test/page": proxied}) as proxy:
        place = f"127.0.0.1:{proxy.port}"
        downloader = ground.open(f"http://a:1@{place}", f"http://b:1@{place}", switch_after=1)
        for number in range(6):
            await fetch(downloader, Work(number, "http://site.test/page"))
    assert len({login for login, _ in tunnels}) == 2
    by_connection: dict[int, set[str]] = {}
    for login, number in tunnels:
        by_connection.setdefault(number, set()).add(login)
    assert all(len(logins) == 1 for logins in by_connection.values())


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:10.0.0.1]",
        "169.254.169.254", "localhost", "a.localhost.", "metadata.google.internal", "printer",
    ],
)  # fmt: skip
async def test_a_proxy_is_not_asked_for_inner_addresses(ground: Ground, host: str) -> None:
    """A6, fault 54: what the agent must not reach it must not reach through a proxy either."""
    async with HostileServer() as proxy:
        downloader = ground.open(f"http://127.0.0.1:{proxy.port}", allow=("127.0.0.2/32",))
        fetched = await fetch(downloader, Work(1, f"http://{host}/"))
        assert fetched.outcome.failure == "blocked"
        assert "not allowed" in fetched.outcome.detail
        assert proxy.connections == 0


async def test_a_redirect_inside_is_refused_behind_a_proxy_too(ground: Ground) -> None:
    """Fault 54: every hop is looked at."""
    routes = {"http://site.test/": says(b"", 302, [("Location", "http://10.0.0.1/admin")])}
    async with HostileServer(routes) as proxy:
        downloader = ground.open(f"http://127.0.0.1:{proxy.port}")
        fetched = await fetch(downloader, Work(1, "http://site.test/"))
        assert fetched.outcome.failure == "blocked"
        assert "10.0.0.1 is not allowed" in fetched.outcome.detail
        assert len(proxy.asked) == 1


async def test_the_address_of_the_proxy_itself_is_guarded(
    ground: Ground, site: HostileServer
) -> None:
    """Fault 54: a run cannot reach an inner service by calling it a proxy."""
    downloader = ground.open(site.origin, allow=())
    fetched = await fetch(downloader, Work(1, "http://example.com/"))
    assert fetched.outcome.failure == "blocked"
    assert "127.0.0.1 is not allowed" in fetched.outcome.detail
    assert site.connections == 0


async def test_requests_wait_for_a_redial_and_go_on(ground: Ground, site: HostileServer) -> None:
    """A6: ADSL. The line is asked for once; nothing starts until it is there."""
    site.routes["/wall"] = blocks_until(1, answer(b"blocked", 429))
    downloader = ground.open(redial=True, switch_when="^HTTP 429")
    first = asyncio.ensure_future(fetch(downloader, Work(1, site.url("/wall"))))
    await ground.dial.wait()
    later = asyncio.ensure_future(fetch(downloader, Work(2, site.url("/page"))))
    # Time enough for a request to it on loopback, if there were one.
    await asyncio.sleep(0.05)
    assert site.paths() == ["/wall"]
    assert downloader.running == 0
    downloader.resume("")
    fetched = [await one for one in (first, later)]
    assert [one.outcome.status for one in fetched] == [200, 200]
    assert ground.redials == 1
    # The old line is gone, and so are its connections.
    assert {asked.connection for asked in site.asked[1:]}.isdisjoint({site.asked[0].connection})


async def test_a_redial_that_fails_is_told(ground: Ground, site: HostileServer) -> None:
    """A6: the request is blocked, and says why the line was not dialled."""
    site.routes["/wall"] = says(b"blocked", 429)
    downloader = ground.open(redial=True, switch_when="^HTTP 429")
    waiting = asyncio.ensure_future(fetch(downloader, Work(1, site.url("/wall"))))
    await ground.dial.wait()
    downloader.resume("the redial command ended with 3")
    outcome = (await waiting).outcome
    assert (outcome.failure, outcome.detail) == ("blocked", "the redial command ended with 3")


async def test_an_agent_that_cannot_dial_says_so(ground: Ground, site: HostileServer) -> None:
    """A6: a run never brings a command of its own."""
    site.routes["/wall"] = says(b"blocked", 429)
    kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))
    rules = ExitRules(redial=True, switch_when="^HTTP 429")
    other = kind.open("run", RunSettings(exits=rules))
    ground.opened.append(other)
    outcome = (await fetch(other, Work(1, site.url("/wall")))).outcome
    assert outcome.failure == "blocked"
    assert "agent.redial" in outcome.detail
