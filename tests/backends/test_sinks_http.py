"""Webhooks against a real HTTP server, and Kafka brokers that are not there."""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from skep.errors import ConfigurationError, InvalidInput, Unavailable
from skep.streams.ports import Sink
from skep.streams.registry import open_sink
from skep.testing.clock import ManualClock
from skep.testing.conformance.sink import pages


class Receiver:
    """Answers with the next status of its list, then with 200; keeps every call."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.calls: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append((dict(request.headers), await request.read()))
        status = self.statuses.pop(0) if self.statuses else 200
        headers = {"Location": "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, text="because\nof that", headers=headers)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/hook", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield found
    await runner.cleanup()


async def send(receiver: Receiver, count: int, options: str = "", **more: Any) -> Any:
    sink = open_sink(receiver.url + options, name="run-1", **more)
    try:
        await sink.open()
        return await sink.write(pages(count))
    finally:
        await sink.close()


async def test_calls_carry_a_key_that_stays_the_same(receiver: Receiver) -> None:
    for _ in range(2):
        assert await send(receiver, 5, "?batch=2") == []
    keys = [headers["Idempotency-Key"] for headers, _ in receiver.calls]
    assert keys == ["run-1/1-2", "run-1/3-4", "run-1/5-5"] * 2
    assert receiver.calls[0][1] == receiver.calls[3][1]


async def test_a_call_is_signed_over_its_time_and_body(
    receiver: Receiver, clock: ManualClock
) -> None:
    await send(receiver, 1, "?secret=HOOK", clock=clock, environment={"HOOK": "s3cret"})
    ((headers, body),) = receiver.calls
    told = f"{int(clock.now())}.".encode() + body
    expected = hmac.new(b"s3cret", told, hashlib.sha256).hexdigest()
    assert headers["Skep-Timestamp"] == str(int(clock.now()))
    assert headers["Skep-Signature"] == f"v1={expected}"


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    await send(receiver, 1)
    assert not [name for name in receiver.calls[0][0] if name.startswith("Skep-")]


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408, 401, 403, 404, 302])
async def test_an_answer_that_may_get_better_is_unavailable(
    receiver: Receiver, status: int
) -> None:
    """Also when a user must act first: a wrong token makes no dead letters."""
    receiver.statuses = [status]
    with pytest.raises(Unavailable, match=f"answered {status}: because of that"):
        await send(receiver, 1)
    assert len(receiver.calls) == 1


@pytest.mark.parametrize("status", [400, 409, 413, 422])
async def test_an_answer_about_the_record_refuses_it(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    (refused,) = await send(receiver, 1)
    assert refused.position == 1
    assert f"answered {status}: because of that" in refused.reason


async def test_a_batch_that_is_refused_must_be_told_in_halves(receiver: Receiver) -> None:
    receiver.statuses = [422]
    with pytest.raises(InvalidInput, match="answered 422"):
        await send(receiver, 4)


async def test_a_query_that_is_not_ours_goes_to_the_receiver(receiver: Receiver) -> None:
    sink = open_sink(f"{receiver.url}?token=abc&batch=3")
    assert sink.describe() == f"{receiver.url.removesuffix('hook')}***?token=***"
    await sink.open()
    await sink.write(pages(1))
    await sink.close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/hook",
        "kafka://127.0.0.1:{port}/topic?timeout=0.5",
        "redis://127.0.0.1:{port}/0?list=a",
        "postgresql://me@127.0.0.1:{port}/db",
        "mysql://me@127.0.0.1:{port}/db",
        "mongodb://127.0.0.1:{port}/db?serverSelectionTimeoutMS=300",
    ],
)
async def test_a_place_that_is_not_there_is_unavailable(url: str) -> None:
    sink = open_sink(url.format(port=free_port()))
    with pytest.raises(Unavailable):
        await open_and_write(sink)
    await sink.close()


async def open_and_write(sink: Sink) -> None:
    await sink.open()
    await sink.write(pages(1))  # a webhook notices only then


async def test_a_database_that_does_not_exist_is_a_mistake(postgres_server: Any) -> None:
    sink = open_sink(postgres_server.url.removesuffix("/postgres") + "/no_such_database")
    with pytest.raises(ConfigurationError, match="does not exist"):
        await sink.open()
    await sink.close()
