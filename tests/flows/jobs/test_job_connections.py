"""Connections that a job names, against servers that mean harm, and where they may not go."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest
from aiohttp import web

from skep.errors import ConfigurationError, SkepError, Unavailable
from skep.jobs.definitions.connection_limits import job_limits
from skep.jobs.endings.notice_transports import WebhookTransport
from skep.jobs.generators.generator_contract import GeneratorFailed, Raw
from skep.jobs.generators.sql_source import SqlSource
from skep.model.jobs.job import Generator
from skep.model.jobs.notice import Notice
from skep.runtime.clock import SystemClock
from skep.settings import JobsSettings, Settings
from skep.streams.host_rules import JobLimits
from skep.streams.ports import Refused
from skep.streams.registry import open_sink
from skep.streams.sink_writer import SinkWriter
from skep.testing.conformance.sink import pages
from skep.testing.grounds.address_spellings import LOOPBACK_SPELLINGS
from skep.testing.servers.hostile_mysql import HostileMysql

CANARY = "canary-4711"
#: Rules as they are by default, and with this machine allowed by the operator.
STRICT = job_limits(Settings())
LOCAL = job_limits(Settings(jobs=JobsSettings(allow_hosts=("127.0.0.0/8",))))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "admin.token"
    file.write_text(CANARY)
    return file


class Listener:
    """Accepts, counts, and says what an SSH server would."""

    def __init__(self) -> None:
        self.count = 0
        self.received = b""
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        writer.write(f"SSH-2.0-{CANARY}\r\n".encode())
        with suppress(TimeoutError, ConnectionError):
            self.received += await asyncio.wait_for(reader.read(4096), 2)
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


async def read(
    url: str, folder: Path, limits: JobLimits = LOCAL, environment: dict[str, str] | None = None
) -> list[Raw]:
    generator = Generator("sql", url=url, query="SELECT 1")
    source = SqlSource(generator, folder, environment or {}, limits, SystemClock())
    found: list[Raw] = []
    async with aclosing(source.batches()) as batches:
        async for batch in batches:
            found += batch
    return found


async def use(url: str, limits: JobLimits | None) -> list[Refused]:
    """Open a sink and write to it, as a run does."""
    sink = open_sink(url, limits=limits)
    try:
        await sink.open()
        return await sink.write(pages(1))
    finally:
        await sink.close()


# -- servers that ask for files


async def test_the_hostile_server_is_hostile(token: Path) -> None:
    """S1: a client that allows it hands its files over."""
    async with HostileMysql(str(token), kind_to=2) as server:

        def ask() -> None:
            where: dict[str, Any] = {
                "host": "127.0.0.1",
                "port": server.port,
                "user": "x",
                "read_timeout": 5,
            }
            with pymysql.connect(**where, local_infile=True) as made, made.cursor() as cursor:
                cursor.execute("SELECT 1")

        await asyncio.to_thread(ask)
        assert server.got == CANARY.encode()


@pytest.mark.parametrize("kind_to", [0, 1, 2, 3, 5])
async def test_a_query_gives_no_file_to_its_server(
    token: Path, tmp_path: Path, kind_to: int
) -> None:
    """S1: whenever the server asks, and whatever the variable of the center says."""
    async with HostileMysql(str(token), kind_to=kind_to) as server:
        where = f"mysql://x@127.0.0.1:{server.port}/d"
        with pytest.raises(GeneratorFailed) as failed:
            await read(where, tmp_path)
        assert server.connections
        for option in ("local_infile=1", "local_infile=true&charset=utf8mb4"):
            with pytest.raises(GeneratorFailed, match=r"SHOP.*local_infile"):
                await read("env:SHOP", tmp_path, environment={"SHOP": f"{where}?{option}"})
        assert server.got == b""
    assert CANARY not in str(failed.value)
    assert str(token) not in str(failed.value), "not even what the server said"


@pytest.mark.parametrize("kind_to", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("limits", [LOCAL, None])
async def test_a_sink_gives_no_file_to_its_server(
    token: Path, kind_to: int, limits: JobLimits | None
) -> None:
    """S1: nor does a sink, of a job or typed by a person."""
    async with HostileMysql(str(token), kind_to=kind_to) as server:
        url = f"mysql://x@127.0.0.1:{server.port}/d?table=t"
        with pytest.raises((SkepError, RuntimeError)):
            await use(url, limits)
        assert server.connections
        assert server.got == b""


# -- credentials of the center


async def test_postgresql_gets_no_password_of_the_center(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: not from PGPASSWORD, not from a password file, no user, no setting of libpq."""
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"*:*:*:*:{CANARY}\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".pgpass").write_text(f"*:*:*:*:{CANARY}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    for name in ("PGPASSWORD", "PGUSER", "PGAPPNAME", "PGOPTIONS", "PGDATABASE"):
        monkeypatch.setenv(name, CANARY)
    async with _asks_for_password() as (port, received):
        for url in (f"postgresql://u@127.0.0.1:{port}/db", f"postgresql://127.0.0.1:{port}"):
            with pytest.raises(GeneratorFailed) as failed:
                await read(f"{url}?sslmode=disable", tmp_path)
            assert CANARY not in str(failed.value)
            sink = open_sink(f"{url}?sslmode=disable", limits=LOCAL)
            with pytest.raises(SkepError):
                await sink.open()
            await sink.close()
        assert received, "it was asked"
        assert CANARY.encode() not in b"".join(received)


@asynccontextmanager
async def _asks_for_password() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A PostgreSQL server that wants the password in clear."""
    received: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(4096))
        writer.write(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
        with suppress(TimeoutError, ConnectionError):
            received.append(await asyncio.wait_for(reader.read(4096), 2))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], received
    server.close()


async def test_a_file_of_the_center_is_not_a_default_file(token: Path, tmp_path: Path) -> None:
    """S5: `read_default_file` showed the first line of any file in the log."""
    url = f"mysql://x@127.0.0.1:9/d?read_default_file={token}"
    with pytest.raises(GeneratorFailed) as failed:
        await read("env:SHOP", tmp_path, environment={"SHOP": url})
    assert CANARY not in str(failed.value)
    assert "read_default_file" in str(failed.value)


# -- where connections may go


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
async def test_no_spelling_gets_past_the_rules(
    host: str, listener: Listener, tmp_path: Path
) -> None:
    """S6: neither sinks nor queries nor notices of a job reach this machine."""
    place = f"{host}:{listener.port}"
    for scheme in ("mysql", "postgresql"):
        with pytest.raises((GeneratorFailed, SkepError)):
            await read(f"{scheme}://x@{place}/d", tmp_path, STRICT)
    for url in (
        f"http://{place}/hook",
        f"redis://{place}/0?list=a",
        f"postgresql://x@{place}/d",
        f"mysql://x@{place}/d",
        f"mongodb://{place}/d?serverSelectionTimeoutMS=300",
        f"kafka://{place}/topic?timeout=0.5",
    ):
        with pytest.raises((SkepError, ValueError)):
            await use(url, STRICT)
    notice = Notice("m", "r", "j", "webhook", f"http://{place}/", "", b"{}", "waiting", 0, 0, 0)
    with pytest.raises((SkepError, ValueError)):
        await WebhookTransport(STRICT.hosts, SystemClock()).deliver(notice, b"")
    assert listener.count == 0


async def test_the_refusal_says_what_to_do(listener: Listener, tmp_path: Path) -> None:
    place = f"127.0.0.1:{listener.port}"
    with pytest.raises(GeneratorFailed, match=r"loopback.*jobs\.allow_hosts"):
        await read(f"mysql://x@{place}/d", tmp_path, STRICT)
    for url in (f"http://{place}/", f"redis://{place}/0?list=a", f"mongodb://{place}/d"):
        with pytest.raises(ConfigurationError, match=r"loopback.*jobs\.allow_hosts"):
            await use(url, STRICT)


async def test_a_server_cannot_send_a_mongo_client_elsewhere(listener: Listener) -> None:
    """S6: each connection is judged, also to members that a replica set invents."""
    import bson

    asked = 0

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        try:
            while True:
                head = await reader.readexactly(16)
                await reader.readexactly(int.from_bytes(head[:4], "little") - 16)
                asked += 1
                hello = {
                    "ok": 1,
                    "isWritablePrimary": False,
                    "secondary": True,
                    "setName": "a",
                    "setVersion": 1,
                    "hosts": [f"127.0.0.3:{port}", f"127.0.0.1:{listener.port}"],
                    "primary": f"127.0.0.1:{listener.port}",
                    "me": f"127.0.0.3:{port}",
                    "minWireVersion": 0,
                    "maxWireVersion": 21,
                }
                body = bytes(4) + b"\0" + bson.encode(hello)
                if int.from_bytes(head[12:16], "little") == 2004:
                    reply = bytes(20)[:8] + bytes(8) + (1).to_bytes(4, "little")
                    body, code = bytes(4) + reply[:12] + (1).to_bytes(4, "little") + body[5:], 1
                else:
                    code = 2013
                size = (16 + len(body)).to_bytes(4, "little")
                writer.write(size + bytes(4) + head[4:8] + code.to_bytes(4, "little") + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.3", 0)
    port = server.sockets[0].getsockname()[1]
    only = job_limits(Settings(jobs=JobsSettings(allow_hosts=("127.0.0.3",))))
    url = f"mongodb://127.0.0.3:{port}/d?replicaSet=a&serverSelectionTimeoutMS=1500"
    for limits, reached in ((only, False), (LOCAL, True)):
        sink = open_sink(url, limits=limits)
        with pytest.raises(Unavailable):
            await sink.open()
        await sink.close()
        assert bool(listener.count) is reached
    assert asked
    server.close()


async def test_what_a_server_answered_is_never_shown(listener: Listener, tmp_path: Path) -> None:
    """S6: the type of an error, a status, a number; never bytes of the answer."""
    place = f"127.0.0.1:{listener.port}"
    told: list[str] = []
    for scheme in ("mysql", "postgresql"):
        with pytest.raises(GeneratorFailed) as failed:
            await read(f"{scheme}://x@{place}/d", tmp_path)
        told.append(str(failed.value))
    for url in (
        f"http://{place}/hook",
        f"redis://{place}/0?list=a",
        f"postgresql://x@{place}/d",
        f"mysql://x@{place}/d",
        f"mongodb://{place}/d?serverSelectionTimeoutMS=300",
    ):
        with pytest.raises(SkepError) as wrong:
            await use(url, LOCAL)
        told.append(wrong.value.detail)
    assert listener.count >= len(told)
    assert not [line for line in told if CANARY in line]


async def test_a_webhook_shows_its_status_only() -> None:
    """S6: an alert that viewers read does not hold the answer of a server inside."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=422, text=CANARY)

    app = web.Application()
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    sink = open_sink(url, limits=LOCAL)
    refused = await sink.write(pages(1))
    await sink.close()
    shown = f"{url.removesuffix('hook')}***"  # the path of a webhook may hold a key
    assert [one.reason for one in refused] == [f"{shown} answered 422"]
    notice = Notice("m", "r", "j", "webhook", url, "", b"{}", "waiting", 0, 0, 0)
    with pytest.raises(Unavailable, match=r"^answered 422$"):
        await WebhookTransport(LOCAL.hosts, SystemClock()).deliver(notice, b"")
    await runner.cleanup()


async def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch, listener: Listener) -> None:
    """S6: a name that changes its mind after the check changes nothing."""
    answers = iter(["203.0.113.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"])
    real = socket.getaddrinfo

    def lies(host: Any, *rest: Any, **more: Any) -> Any:
        return real(next(answers) if host == "rebind.test" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lies)
    limits = job_limits(Settings(jobs=JobsSettings(allow_hosts=("203.0.113.0/24",))))
    assert limits.hosts.addresses("rebind.test", 1) == ["203.0.113.1"]
    with pytest.raises(ConfigurationError, match="loopback"):
        limits.hosts.addresses("rebind.test", listener.port)
    assert listener.count == 0


async def test_a_person_names_this_machine(listener: Listener) -> None:
    """`skep run -o redis://127.0.0.1/...`: the person named that host."""
    sink = open_sink(f"redis://127.0.0.1:{listener.port}/0?list=a")
    with pytest.raises((Unavailable, ConfigurationError)):
        await sink.open()
    await sink.close()
    assert listener.count


async def test_a_pump_ends_at_a_host_that_is_not_allowed(listener: Listener) -> None:
    """It is not tried again and again: the operator must allow it first."""

    async def nothing(_after: int, _limit: int) -> list[object]:
        return []

    async def bury(_refused: object) -> None:
        return None

    sink = open_sink(f"redis://127.0.0.1:{listener.port}/0?list=a", limits=STRICT)
    pump = SinkWriter(sink, nothing, SystemClock(), Random(1), dead=bury)  # type: ignore[arg-type]  # empty
    with pytest.raises(ConfigurationError, match="not allowed"):
        await pump.run_until(lambda: False)
    await pump.close()
