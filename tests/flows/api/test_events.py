"""Live updates at a real center: over HTTP, with roles, limits, and two centers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from skep.center.http.authentication import Role
from skep.cli.main import run as command_line
from skep.errors import InvalidFilter, InvalidInput
from skep.model.states import RunState
from skep.runtime.clock import SystemClock
from skep.testing.grounds.centers import RunningCenter, running_center, two_centers
from skep.testing.polling import until
from skep.wire.api.monitoring.events import LiveEvent, WhichEvents
from skep.wire.client import CenterClient
from skep.wire.client.events import follow

PATH = "/api/v1/events"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    flags = {"center_streams": 12, "center_streams_per_address": 8}
    async with running_center(tmp_path, **flags) as running:
        yield running


@asynccontextmanager
async def client_of(center: RunningCenter, token: str = "") -> AsyncIterator[CenterClient]:
    used = token or center.admin.token
    async with CenterClient([center.url], used, SystemClock(), Random(1)) as client:
        yield client


async def next_of(events: AsyncIterator[LiveEvent], seconds: float = 20.0) -> LiveEvent:
    async with asyncio.timeout(seconds):
        return await anext(events)


async def test_lists_and_objects_are_watched_on_one_stream(center: RunningCenter) -> None:
    """R3: several resources and filters, each with its page and its changes."""
    await center.open_run("r1")
    await center.open_run("r2")
    async with client_of(center) as client:
        watches = ["runs:state:running", "run:r2", "jobs", "agents", "operations", "failures"]
        events = follow(client.api, watches, SystemClock())
        pages = {(one := await next_of(events)).data.watch: one for _ in watches}
        assert {one.event for one in pages.values()} == {"page"}
        running = [row["id"] for row in pages["runs:state:running"].data.items]
        assert running == ["r2", "r1"]
        assert [row["id"] for row in pages["run:r2"].data.items] == ["r2"]
        begun = time.monotonic()
        assert (await center.admin.post("/api/v1/runs/r2/pause")).status == 200
        found = [await next_of(events) for _ in range(2)]
        assert time.monotonic() - begun < 5.0
        by_watch = {one.data.watch: one.data for one in found}
        assert by_watch["runs:state:running"].gone == ["r2"]
        assert by_watch["run:r2"].changed[0]["state"] == "paused"


async def test_the_command_line_prints_changes(
    center: RunningCenter, capsys: pytest.CaptureFixture[str]
) -> None:
    await center.open_run("r1")
    at = ["--center", center.url, "--token-file", str(center.folder / "admin.token")]
    watch = ["watch", "runs:state:running", "--events", "2", *at]
    printing = asyncio.create_task(asyncio.to_thread(command_line, watch))
    await until(lambda: center.services.live.limits.open == 1)
    await center.open_run("r2")
    assert await printing == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "runs:state:running: 1 rows"
    assert out[1].split()[:2] == ["r1", "running"]
    assert out[2].split()[:3] == ["runs:state:running:", "r2", "running"]
    code = await asyncio.to_thread(command_line, ["watch", "pages", *at])
    assert (code, "cannot be watched" in capsys.readouterr().err) == (2, True)


async def test_a_lost_connection_continues_where_it_was(center: RunningCenter) -> None:
    await center.open_run("r1")
    async with client_of(center) as client:
        asks = WhichEvents(["runs"])
        async with client.api.events.watch(asks) as download:
            first = await anext(download.pieces)
            second = await anext(download.pieces) if b"event" not in first else first
        last = next(line for line in second.split(b"\n") if line.startswith(b"id: "))[4:].decode()
        async with client.api.events.watch(asks, last) as download:
            head = await anext(download.pieces)
            assert b"page" not in head
            await center.open_run("r2")
            async with asyncio.timeout(20):
                change = await anext(download.pieces)
        assert b'"r2"' in change
        assert b'"r1"' not in change


async def test_a_revoked_token_loses_its_stream(center: RunningCenter) -> None:
    """A role that is lowered under an open stream: it ends within seconds."""
    token = (await center.caller(Role.VIEWER, "vera")).token
    async with client_of(center, token) as client:
        async with client.api.events.watch(WhichEvents(["runs"])) as download:
            await anext(download.pieces)
            await center.services.store.tokens.revoke("vera")
            begun, data = time.monotonic(), b""
            async for piece in download.pieces:
                data += piece
        assert b"event: end" in data
        assert b"revoked" in data
        assert time.monotonic() - begun < 20
    assert center.services.live.limits.open == 0


@pytest.mark.parametrize(
    ("watch", "error"),
    [
        (["pages"], InvalidInput),
        (["runs:colour:red"], InvalidFilter),
        (["run:"], InvalidInput),
        (["operation:x"], InvalidInput),
        (["runs:" + "x" * 3000], InvalidInput),
        ([f"run:{n}" for n in range(21)], InvalidInput),
        ([], InvalidInput),
    ],
)
async def test_bad_watches_are_refused(
    center: RunningCenter, watch: list[str], error: type[Exception]
) -> None:
    async with client_of(center) as client:
        with pytest.raises(error):
            async with client.api.events.watch(WhichEvents(watch)):
                raise AssertionError("it was accepted")
    await until(lambda: center.services.live.limits.open == 0)
    assert center.services.live.hub.watched == 0


async def test_many_streams_from_one_address_are_refused(center: RunningCenter) -> None:
    """The others go on; a stream that is closed makes room."""
    async with aiohttp.ClientSession(headers=center.admin.headers) as session:
        opened = [await session.get(f"{center.url}{PATH}?watch=runs") for _ in range(8)]
        assert {one.status for one in opened} == {200}
        for _ in range(20):
            async with session.get(f"{center.url}{PATH}?watch=runs") as refused:
                problem = await refused.json(content_type=None)
                assert refused.status == 429
                assert "8 event streams are open from 127.0.0.1" in problem["detail"]
        assert center.services.live.hub.watched == 1
        opened[0].close()
        await until(lambda: center.services.live.limits.open == 7)
        again = await session.get(f"{center.url}{PATH}?watch=runs")
        assert again.status == 200
        for one in (*opened, again):
            one.close()
    await until(lambda: center.services.live.limits.open == 0)
    assert center.services.live.hub.watched == 0


async def test_a_client_that_does_not_read_is_cut_off(tmp_path: Path) -> None:
    """A dead client with an open stream: its memory is bounded, and its place is free again."""
    async with running_center(tmp_path, center_body_seconds=1.0) as center:
        for number in range(100):
            await center.open_run(f"run-{number}")
        host, port = center.url.removeprefix("http://").split(":")
        with socket.socket() as dead:
            dead.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            dead.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(dead, (host, int(port)))
            token = center.admin.headers["Authorization"]
            head = (
                f"GET {PATH}?watch=runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\n\r\n"
            )
            await loop.sock_sendall(dead, head.encode())
            await until(lambda: center.services.live.limits.open == 1)
            store, states = center.services.store, (RunState.PAUSED, RunState.RUNNING)
            deadline = time.monotonic() + 60
            while center.services.live.limits.open and time.monotonic() < deadline:
                for number in range(100):
                    at = states[int(time.monotonic() * 2) % 2]
                    await store.runs.move(f"run-{number}", at, "x" * 1900, time.time())
                center.services.signals.changes.notify()
                await asyncio.sleep(0.1)
        assert center.services.live.limits.open == 0
        assert center.services.live.hub.watched == 0


async def test_a_center_that_stops_ends_its_streams(tmp_path: Path) -> None:
    async with running_center(tmp_path) as center, client_of(center) as client:
        async with client.api.events.watch(WhichEvents(["runs"])) as download:
            await anext(download.pieces)
            begun = time.monotonic()
            stopping = asyncio.create_task(center.local.stop())
            data = b"".join([piece async for piece in download.pieces])
            await stopping
        assert b"event: end" in data
        assert time.monotonic() - begun < 10


async def test_a_change_at_another_center_arrives(tmp_path: Path, shared: dict[str, str]) -> None:
    async with two_centers(tmp_path, shared) as (one, two), client_of(one) as client:
        await two.open_run("r")
        events: Any = follow(client.api, ["runs"], SystemClock())
        assert (await next_of(events)).event == "page"
        await two.admin.post("/api/v1/runs/r/pause")
        begun = time.monotonic()
        change = await next_of(events)
        assert change.data.changed[0]["state"] == "paused"
        assert time.monotonic() - begun < 5.0
