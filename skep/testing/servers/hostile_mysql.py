"""A MySQL server that requests files of its clients, written packet by packet.

It accepts every login and answers queries with a LOCAL INFILE request. It runs inside a test, on
loopback only, and records what clients send instead of refusing.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Self

HEAD = 4
COMMAND_QUERY = b"\x03"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
#: All capabilities of an old server, without TLS.
CAPABILITIES = 0xFFFFF7FF & ~0x20 & 0x00FFFFFF
SALT = b"12345678901234567890"


class HostileMysql:
    """`async with HostileMysql("/etc/passwd") as server`; `server.got` has bytes of files."""

    def __init__(self, wanted: str, *, kind_to: int = 0) -> None:
        """`kind_to`: number of queries that are first answered normally."""
        self.wanted = wanted
        self.kind_to = kind_to
        self.got = b""
        self.connections = 0
        self.queries: list[bytes] = []
        self.logins: list[bytes] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await _send(writer, 0, _greeting())
            number, login = await _packet(reader)
            self.logins.append(login)
            await _send(writer, number + 1, OK)
            await self._talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            number, packet = await _packet(reader)
            if number:  # commands start with 0, requested data continues the sequence
                self.got += packet
                if not packet:
                    await _send(writer, number + 1, OK)
            elif not packet.startswith(COMMAND_QUERY):
                return
            else:
                self.queries.append(packet[1:])
                kind = len(self.queries) <= self.kind_to
                await _send(writer, 1, OK if kind else b"\xfb" + self.wanted.encode())


def _greeting() -> bytes:
    return b"".join(
        (
            b"\x0a8.0.11\0",
            struct.pack("<I", 1),
            SALT[:8] + b"\0",
            struct.pack("<H", CAPABILITIES & 0xFFFF),
            b"\x2d\x02\x00",
            struct.pack("<H", CAPABILITIES >> 16),
            bytes([len(SALT) + 1]) + bytes(10),
            SALT[8:] + b"\0",
            b"mysql_native_password\0",
        )
    )


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readexactly(HEAD)
    return head[3], await reader.readexactly(int.from_bytes(head[:3], "little"))


async def _send(writer: asyncio.StreamWriter, number: int, payload: bytes) -> None:
    writer.write(len(payload).to_bytes(3, "little") + bytes([number & 0xFF]) + payload)
    await writer.drain()
