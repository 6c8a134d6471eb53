"""Bounds on connections to a center: what each refuses, and what it lets through."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.center.http.connections import register
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until

GOOD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
#: Bounds of time that a test can wait for.
SHORT: dict[str, Any] = {"center_head_seconds": 0.6, "center_body_seconds": 0.6}


class Line:
    """A connection without the checks of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def status(self) -> int:
        """Of the answer, 0 = closed without one."""
        head = b""
        with contextlib.suppress(ConnectionError):
            head = await asyncio.wait_for(self.reader.readline(), 20)
        return int(head.split()[1]) if head else 0

    async def rest(self) -> bytes:
        """Everything until the center closes."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), 20)
        return b""


@contextlib.asynccontextmanager
async def line(center: RunningCenter) -> AsyncIterator[Line]:
    host, port = center.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def refused(center: RunningCenter, reason: str) -> float:
    """How many connections were."""
    name = "skep_connections_refused_total"
    found = center.services.metrics.registry.get_sample_value(name, {"reason": reason})
    return found or 0.0


async def status_of(center: RunningCenter, data: bytes) -> int:
    async with line(center) as open_line:
        await open_line.send(data)
        return await open_line.status()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (GOOD + b"X-A: " + b"a" * 31_000 + b"\r\n\r\n", 200),
        (GOOD + b"X-A: " + b"a" * 33_000 + b"\r\n\r\n", 431),
        (GOOD + b"X-A: " + b"a" * 33_000, 431),
        (GOOD + b"A" * 33_000, 431),
        (GOOD + b"x: y\r\n" * 99 + b"\r\n", 200),
        (GOOD + b"x: y\r\n" * 100 + b"\r\n", 431),
        (GOOD + b"x: y\r\n" * 200_000, 431),
        (GOOD.replace(b"healthz", b"healthz?" + b"a" * 16_000) + b"\r\n", 200),
        (GOOD.replace(b"healthz", b"healthz?" + b"a" * 16_400) + b"\r\n", 414),
        (b"GET /" + b"a" * 17_000, 414),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"\r\n" * 20_000, 431),
    ],
)
async def test_a_head_is_bounded(tmp_path: Path, data: bytes, status: int) -> None:
    """S3: 32 KB and 100 headers (431), a URL of 16 KB (414); what is smaller is served."""
    async with running_center(tmp_path / "center") as center:
        assert await status_of(center, data) == status
        assert await status_of(center, GOOD + b"\r\n") == 200


async def test_trailers_are_bounded_and_belong_to_no_request(tmp_path: Path) -> None:
    """S3: headers behind a body are counted like those before it."""
    head = (
        b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\n{\r\n0\r\n"
    )
    async with running_center(tmp_path / "center") as center:
        admin = f"Authorization: Bearer {center.admin.token}\r\n".encode()
        async with line(center) as open_line:
            await open_line.send(head + admin + b"\r\n")
            assert await open_line.status() in {401, 405}
        async with line(center) as open_line:
            await open_line.send(head + b"X-A: ")
            for _ in range(40):
                await open_line.send(b"a" * 2000)
                await asyncio.sleep(0)
            await open_line.rest()
        assert refused(center, "head_size") == 1


async def test_half_a_head_is_answered_in_time_and_silence_is_ended(tmp_path: Path) -> None:
    """S3: a head must be complete in time, also the second one of a connection."""
    async with running_center(tmp_path / "center", **SHORT) as center:
        assert await status_of(center, GOOD) == 408
        assert await status_of(center, b"") == 0
        async with line(center) as open_line:
            await open_line.send(GOOD + b"\r\n" + b"GET /healthz HT")
            said = await open_line.rest()
        assert said.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1 408" in said
        async with line(center) as open_line:
            await open_line.send(GOOD + b"\r\n")
            assert await open_line.status() == 200
            dripping = asyncio.create_task(drip(open_line, b"\r\n"))
            assert await open_line.rest() is not None
            dripping.cancel()


def with_token(center: RunningCenter) -> bytes:
    """A call that is allowed."""
    token = f"Authorization: Bearer {center.admin.token}\r\n"
    return f"GET /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}\r\n".encode()


async def drip(open_line: Line, data: bytes) -> None:
    while True:
        await open_line.send(data)
        await asyncio.sleep(0.05)


async def test_a_body_has_a_time_and_a_rate(tmp_path: Path) -> None:
    """S3: a body that drips is ended, one that comes slowly but steadily is not."""
    slow: dict[str, Any] = {**SHORT, "center_body_rate": 10_000}
    async with running_center(tmp_path / "center", **slow) as center:
        head = (
            f"POST /requestqueue/r1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20000\r\n"
            f"Authorization: Bearer {center.admin.token}\r\n\r\n"
        ).encode()
        async with line(center) as open_line:
            await open_line.send(head)
            dripping = asyncio.create_task(drip(open_line, b" "))
            assert await open_line.status() == 408
            dripping.cancel()
        async with line(center) as open_line:
            await open_line.send(head)
            for _ in range(10):
                await open_line.send(b" " * 2000)
                await asyncio.sleep(0.15)
            assert await open_line.status() == 400, "1.5 s, and its body was read"


async def test_a_body_without_a_token_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: the answer is 401 at once, and a body that goes on is ended."""
    monkeypatch.setattr("skep.center.http.connections.protocol.LINGER", 0.3)
    async with running_center(tmp_path / "center", **SHORT) as center, line(center) as open_line:
        head = b"POST /requestqueue/r1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20000\r\n\r\n"
        await open_line.send(head)
        assert await open_line.status() == 401
        dripping = asyncio.create_task(drip(open_line, b" "))
        assert b"HTTP/1.1" not in await open_line.rest(), "one answer to one request"
        dripping.cancel()


async def test_requests_sent_ahead_are_bounded(tmp_path: Path) -> None:
    """S3: ten thousand requests in one packet."""
    async with running_center(tmp_path / "center") as center:
        async with line(center) as open_line:
            await open_line.send((GOOD + b"\r\n") * 10)
            for _ in range(10):
                assert b" 200 " in await open_line.reader.readuntil(b"\r\n\r\n")
                await open_line.reader.readuntil(b"}")
        async with line(center) as open_line:
            await open_line.send((GOOD + b"\r\n") * 5_000)
            assert (await open_line.rest()).count(b"HTTP/1.1") <= 17


async def test_an_answer_that_is_not_read_is_given_up(tmp_path: Path) -> None:
    """S3: a caller that asks and never reads."""
    async with running_center(tmp_path / "center", **SHORT) as center:
        host, port = center.url.removeprefix("http://").split(":")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((host, int(port)))
            deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 15)
            await until(lambda: refused(center, "unread"), seconds=20)


async def test_the_number_of_connections_is_bounded_and_new_ones_come_in(tmp_path: Path) -> None:
    """S3: beyond the bound the silent ones that waited longest are ended; agents keep theirs."""
    async with running_center(tmp_path / "center", center_connections=40) as center:
        agent = center.hand_agent()
        await agent.register()
        async with contextlib.AsyncExitStack() as stack, center.agent.socket("a1") as commands:
            opened = [await stack.enter_async_context(line(center)) for _ in range(60)]
            await agent.heartbeat()
            assert await status_of(center, GOOD + b"\r\n") == 200
            assert [await one.status() for one in opened[:15]] == [503] * 15
            assert not commands.closed
        assert not opened[-1].reader.at_eof()


async def test_only_callers_with_tokens_fill_a_center(tmp_path: Path) -> None:
    """S3: where every connection has shown a token, the next one is refused."""
    folder = tmp_path / "center"
    async with (
        running_center(folder, center_connections=16) as center,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(16):
            one = await stack.enter_async_context(line(center))
            await one.send(with_token(center))
            assert await one.status() == 200
        assert await status_of(center, b"") == 503


async def test_an_address_has_few_connections_without_a_token_and_many_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: a bound for each address that agents behind one router do not meet."""
    few: dict[str, Any] = {"center_anonymous_connections": 20, "center_head_seconds": 60}
    monkeypatch.setattr(register, "GRACE", 0.2)
    monkeypatch.setattr(register, "LOOK_EVERY", 0.1)
    async with (
        running_center(tmp_path / "center", **few) as center,
        contextlib.AsyncExitStack() as stack,
    ):
        known = []
        for _ in range(60):
            known.append(await stack.enter_async_context(line(center)))
            await known[-1].send(with_token(center))
        silent = [await stack.enter_async_context(line(center)) for _ in range(60)]
        assert [await one.rest() for one in silent[:40]] == [b""] * 40
        await asyncio.sleep(0.5)
        assert not any(one.reader.at_eof() for one in silent[40:])
        assert [await one.status() for one in known] == [200] * 60
        # A connection that was closed still has its answer to read: what was refused is counted.
        assert refused(center, "address") == 40


async def test_after_a_stop_of_the_center_no_caller_is_late(tmp_path: Path) -> None:
    """S3 meets a frozen center: what was sent while it stood still counts as sent in time."""
    async with running_center(tmp_path / "center", **SHORT) as center, line(center) as open_line:
        await open_line.send(GOOD)
        await asyncio.sleep(0.3)
        time.sleep(1.5)  # noqa: ASYNC251 - the loop stands still
        await open_line.send(b"\r\n")
        assert await open_line.status() == 200
