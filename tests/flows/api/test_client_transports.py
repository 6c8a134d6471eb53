"""Transports of the typed client when something goes wrong: silence, half answers, dead centers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from skep.errors import CenterUnreachable, Unauthorized
from skep.testing.faultproxy import TO_CALLER, FaultProxy
from skep.testing.grounds.centers import running_center
from skep.testing.private import free_port
from skep.wire.api.health import GET_OPENAPI, GET_VERSION
from skep.wire.client.api import CenterApi, RouteCaller
from skep.wire.client.http import HttpTransport
from skep.wire.client.in_process import InProcessTransport

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
HEAD = {"type": "http.response.start", "status": 200, "headers": []}


def part(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def center_on(url: str, *before: str) -> HttpTransport:
    return HttpTransport([*before, url], "")


async def test_a_stream_begins_at_the_next_center_when_one_is_dead(tmp_path: Path) -> None:
    """R5, fault 1: as every other call."""
    async with running_center(tmp_path / "center") as center:
        transport = center_on(center.url, f"http://127.0.0.1:{free_port()}")
        try:
            async with RouteCaller(transport).stream(GET_OPENAPI) as download:
                assert download.content_type == "application/json"
                content = await download.read()
            assert content == await CenterApi(transport).health.openapi()
            assert transport.addresses.current == center.url
        finally:
            await transport.close()


async def test_a_stream_that_breaks_is_told_as_an_error_of_the_center(tmp_path: Path) -> None:
    """Fault 1: no half answer is taken for a whole one, and no error of aiohttp gets out."""
    async with (
        running_center(tmp_path / "center") as center,
        FaultProxy(int(center.url.rpartition(":")[2])) as proxy,
    ):
        transport = center_on(proxy.url)
        proxy.cut(TO_CALLER, after=50_000, when=b"/openapi.json")
        read: list[int] = []

        async def reading() -> None:
            async with RouteCaller(transport).stream(GET_OPENAPI) as download:
                async for piece in download.pieces:
                    read.append(len(piece))  # noqa: PERF401 - kept although it breaks off

        try:
            with pytest.raises(CenterUnreachable, match="stopped answering"):
                await reading()
            assert 0 < sum(read) <= 50_000
        finally:
            await transport.close()


async def test_another_kind_of_server_is_named_and_the_next_center_asked(tmp_path: Path) -> None:
    """An answer that is not Skep's counts as none: the next address gets the call."""

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    stranger = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, running_center(tmp_path / "center") as center:
        both, alone = center_on(center.url, stranger), center_on(stranger)
        try:
            assert (await CenterApi(both).health.version()).center
            with pytest.raises(CenterUnreachable, match="did not answer like a Skep center"):
                await CenterApi(alone).health.version()
        finally:
            await both.close()
            await alone.close()


async def silent(_scope: Message, _receive: Any, _send: Send) -> None:
    await asyncio.Event().wait()


async def broken(_scope: Message, _receive: Any, send: Send) -> None:
    await send(HEAD)
    await send(part(b"half"))


class Endless:
    """An application that never stops sending."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = False

    async def __call__(self, _scope: Message, _receive: Any, send: Send) -> None:
        await send(HEAD)
        try:
            while True:
                await send(part(b"x"))
                self.sent += 1
        finally:
            self.ended = True


async def test_an_application_that_does_not_answer_is_given_up() -> None:
    """In time, whole answers and streams alike."""
    transport = InProcessTransport(silent, "")
    with pytest.raises(CenterUnreachable, match=r"did not answer GET /version within 0\.05 s"):
        await CenterApi(transport, 0.05).health.version()
    with pytest.raises(CenterUnreachable):
        async with RouteCaller(transport, 0.05).stream(GET_VERSION):
            raise AssertionError("it does not begin")


async def test_an_application_that_ends_too_early_gave_no_answer() -> None:
    transport = InProcessTransport(broken, "")
    with pytest.raises(CenterUnreachable, match="aborted its answer"):
        await CenterApi(transport).health.version()


async def test_an_application_waits_for_its_reader_and_ends_with_it() -> None:
    """R5: a large answer is not gathered in memory, and nothing runs on when the reader stops."""
    app = Endless()
    async with RouteCaller(InProcessTransport(app, "")).stream(GET_VERSION) as download:
        assert await anext(aiter(download.pieces)) == b"x"
        for _ in range(50):
            await asyncio.sleep(0)
        assert app.sent < 10
    assert app.ended


async def test_a_wrong_token_is_refused_in_process(tmp_path: Path) -> None:
    """Fault 48: being in the same process opens nothing."""
    async with running_center(tmp_path / "center") as center:
        for token in ("", "skep_admin_wrong"):
            with pytest.raises(Unauthorized):
                await CenterApi(InProcessTransport(center.local.center.app, token)).runs.list()
