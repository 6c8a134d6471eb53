"""TLS through proxies (A6): tunnels, certificates, HTTP/2, and logins that stay apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random
from typing import Any, Self

import pytest

from skep.archive.frames import read_records, split_response
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.model.proxies import ExitRules, SessionRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.testing import servers
from skep.testing.grounds.downloaders import PAGE
from skep.testing.servers.hostile_http import fetch, fetch_all
from skep.testing.servers.nginx_tls import TlsNginx

Open = Callable[..., HttpDownloader]


@pytest.fixture
async def open_with(tls: TlsNginx) -> AsyncIterator[Open]:
    made: list[HttpDownloader] = []

    def open_one(*proxies: str, trusting: bool = True, **more: Any) -> HttpDownloader:
        ca_file = str(tls.certificate) if trusting else ""
        policy = EgressPolicy(allow=("127.0.0.0/8",))
        kind = HttpKind(SystemClock(), Random(1), policy, ca_file=ca_file)
        sessions = more.pop("sessions", None)
        rules = ExitRules(proxies=proxies, **more)
        settings = RunSettings(time_limit=5.0, exits=rules, sessions=sessions, host_concurrency=32)
        made.append(kind.open("run", settings))
        return made[-1]

    yield open_one
    for downloader in made:
        await downloader.close()


class Tunnels:
    """A proxy for CONNECT that takes any login, and remembers which tunnel is whose."""

    def __init__(self) -> None:
        self.logins: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, user: str) -> str:
        return f"http://{user}:x@127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        self.logins.append(fields["Proxy-Authorization"])
        host, port = head.split(" ")[1].rsplit(":", 1)
        inner, outer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Through\r\nX-From: the proxy\r\n\r\n")
        with suppress(asyncio.CancelledError, OSError):
            await asyncio.gather(_copy(reader, outer), _copy(inner, writer))
        outer.transport.abort()
        writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()
    target.close()


@pytest.mark.parametrize("kind", ["tinyproxy", "microsocks"])
async def test_a_page_through_a_tunnel(open_with: Open, tls: TlsNginx, kind: str) -> None:
    """A6: the head that is kept is the server's, not the proxy's answer to CONNECT."""
    with getattr(servers, kind)(user="bee", password="honey") as proxy:
        work = Work(1, f"https://127.0.0.1:{tls.port}/page.html")
        fetched = await fetch(open_with(proxy.url), work)
        assert (fetched.outcome.failure, fetched.outcome.status) == ("", 200)
        kept = split_response(read_records(fetched.frames)[0])
        assert kept.body == PAGE
        assert dict(kept.headers)["server"].startswith("nginx")
        assert b"honey" not in fetched.frames


async def test_certificates_are_checked_behind_a_tunnel(open_with: Open, tls: TlsNginx) -> None:
    """A proxy that looks inside is noticed; and it is not the proxy that is called dead."""
    with servers.microsocks() as proxy:
        downloader = open_with(proxy.url, trusting=False)
        outcome = (await fetch(downloader, Work(1, f"https://127.0.0.1:{tls.port}/"))).outcome
    assert outcome.failure == "network"
    assert "certificate" in outcome.detail.lower()


async def test_a_server_that_is_not_there_costs_no_proxy_its_place(open_with: Open) -> None:
    """A6: the proxy works, what it was asked for does not."""
    with servers.microsocks() as socks, servers.tinyproxy() as http:
        for proxy in (socks, http):
            downloader = open_with(proxy.url)
            for number in range(2):
                outcome = (await fetch(downloader, Work(number, "https://127.0.0.1:1/"))).outcome
                assert outcome.failure == "network"
                assert "proxies works" not in outcome.detail


async def test_two_logins_never_share_a_tunnel(open_with: Open, tls: TlsNginx) -> None:
    """A6: a tunnel keeps the address that its login gave it."""
    async with Tunnels() as proxy:
        downloader = open_with(proxy.url("a"), proxy.url("b"), sessions=SessionRules(count=2))
        works = [Work(n, f"https://127.0.0.1:{tls.port}/page.html") for n in range(6)]
        fetched = [await fetch(downloader, work) for work in works]
        assert {one.outcome.status for one in fetched} == {200}
        assert len(proxy.logins) == 2, "each session opens one tunnel and keeps it"
        assert len(set(proxy.logins)) == 2
        kept = split_response(read_records(fetched[0].frames)[0])
        assert "X-From" not in dict(kept.headers)
        many = await fetch_all(downloader, works * 10)
        assert {one.outcome.status for one in many} == {200}
