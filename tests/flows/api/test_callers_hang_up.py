"""Callers that hang up are no bug of the center: nothing is logged as one, nothing is kept."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from skep.testing.grounds.centers import Caller, RunningCenter, running_center
from skep.testing.polling import until

#: The head of a call, what is sent of its body before the caller hangs up, and its route.
HALF_A_BODY = ("PUT /api/v1/runs/half", "content-length: 500", '{"settings": {"block')
HALF_A_CHUNK = (
    "POST /requestqueue/half",
    "transfer-encoding: chunked",
    '40\r\n["http://a.test/',
)
LONG_POLL = ("POST /node/lease", "content-length: 23", '{"agent":"a1","wait":1}')


async def calls(center: RunningCenter, route: str) -> float:
    text = (await center.anyone.get("/metrics")).content.decode()
    name = f'skep_call_duration_seconds_count{{route="{route}"}}'
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def hang_up(caller: Caller, line: str, length: str, body: str) -> None:
    """The center has asked for the body before the connection ends."""
    place = caller.url.removeprefix("http://")
    host, port = place.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = [f"{line} HTTP/1.1", f"host: {place}", f"authorization: Bearer {caller.token}"]
    head += ["content-type: application/json", length, "expect: 100-continue", "", ""]
    writer.write("\r\n".join(head).encode())
    assert b"100" in await reader.readuntil(b"\r\n\r\n")
    writer.write(body.encode())
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("words", "route"),
    [
        (HALF_A_BODY, "/api/v1/runs/{run}"),
        (HALF_A_CHUNK, "/requestqueue/{identity}"),
        (LONG_POLL, "/node/lease"),
    ],
    ids=["half a body", "half a chunk", "a long poll"],
)
async def test_a_caller_that_hangs_up_is_not_logged_as_a_bug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words: tuple[str, str, str], route: str
) -> None:
    """E11: `bug-...` is for our own mistakes."""
    async with running_center(tmp_path / "data") as center:
        await center.hand_agent("a1").register()
        before = await calls(center, route)
        caller = center.agent if route.startswith("/node") else center.admin

        async def over() -> bool:
            return await calls(center, route) > before

        with caplog.at_level(logging.WARNING):
            await hang_up(caller, *words)
            await until(over)
        errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
        assert not errors
        assert (await center.admin.get("/api/v1/runs/half")).status == 404
