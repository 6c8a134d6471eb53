"""What the http downloader refuses: addresses, names, headers, certificates it cannot trust."""

from __future__ import annotations

import pytest

from skep.archive.frames import read_records, split_response
from skep.model.request import Work
from skep.testing.grounds.address_spellings import LOOPBACK_SPELLINGS
from skep.testing.grounds.downloaders import PAGE, Open
from skep.testing.private import free_port
from skep.testing.servers.hostile_http import (
    HostileServer,
    fetch,
    fetch_all,
    redirects,
    says,
)
from skep.testing.servers.nginx_tls import TlsNginx


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
async def test_an_invalid_http_uri_is_refused(uri: str, opened: Open) -> None:
    outcome = (await fetch(opened(), Work(1, uri))).outcome
    assert outcome.failure == "content"
    assert outcome.detail


async def test_ipv6(opened: Open) -> None:
    async with HostileServer({"/page": says(PAGE)}, host="::1") as server:
        outcome = (await fetch(opened(), Work(1, server.url("/page")))).outcome
    assert (outcome.failure, outcome.status, outcome.address) == ("", 200, "::1")


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
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


async def test_a_signal_without_listeners(opened: Open, unused_port: int) -> None:
    outcome = (await fetch(opened(), Work(1, f"http://127.0.0.1:{unused_port}/"))).outcome
    assert (outcome.failure, outcome.status) == ("network", 0)
    assert outcome.length == 0


async def test_a_name_that_does_not_exist(opened: Open) -> None:
    # A label of 64 characters is not a valid name, so that no server needs to be asked.
    outcome = (await fetch(opened(), Work(1, f"http://{'a' * 64}.test/"))).outcome
    assert outcome.failure == "network"
    assert "resolve" in outcome.detail


@pytest.fixture
def unused_port() -> int:
    return free_port()


async def test_an_unknown_certificate_is_refused(opened: Open, tls: TlsNginx) -> None:
    uri = f"https://127.0.0.1:{tls.port}/page.html"
    fetched = await fetch(opened(), Work(1, uri))
    assert (fetched.outcome.failure, fetched.outcome.status) == ("network", 0)
    assert "certificate" in fetched.outcome.detail.lower()
    assert fetched.frames == b""


async def test_http2_with_a_known_certificate(opened: Open, tls: TlsNginx) -> None:
    uri = f"https://127.0.0.1:{tls.port}/page.html"
    downloader = opened(ca_file=str(tls.certificate))
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
    downloader = opened(ca_file=str(tls.certificate))
    assert (await fetch(downloader, Work(1, uri))).outcome.failure == "network"
