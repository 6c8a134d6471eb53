"""Errors of SQL servers that a job names: their text is the server's, and no caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from skep.errors import SkepError
from skep.jobs.generators.generator_contract import GeneratorFailed
from tests.flows.jobs.test_job_connections import CANARY, LOCAL, read, use


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
async def test_an_error_of_a_server_shows_its_number_only(scheme: str, tmp_path: Path) -> None:
    """S5, S6: what a hostile server says in an error is in no log and no alert."""
    said = f"{CANARY} is closed".encode()
    if scheme == "mysql":
        error = b"\xff" + (1130).to_bytes(2, "little") + said
        answer, options = len(error).to_bytes(3, "little") + b"\0" + error, ""
    else:
        error = b"SFATAL\0C28000\0M" + said + b"\0\0"
        answer, options = b"E" + (len(error) + 4).to_bytes(4, "big") + error, "?sslmode=disable"
    async with _says(answer) as port:
        url = f"{scheme}://x@127.0.0.1:{port}/d{options}"
        with pytest.raises(GeneratorFailed) as failed:
            await read(url, tmp_path)
        with pytest.raises(SkepError) as wrong:
            await use(url, LOCAL)
    for told in (str(failed.value), wrong.value.detail):
        assert "OperationalError" in told
        assert CANARY not in told


@asynccontextmanager
async def _says(answer: bytes) -> AsyncIterator[int]:
    """A server that answers every connection with the same bytes."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(reader.read(4096), 2)
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
