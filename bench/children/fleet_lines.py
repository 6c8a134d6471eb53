"""Minimal connections of simulated agents: HTTP/1.1 and WebSocket, implemented here.

Used by the load process of `fleet` only. A client library would need more of the machine than the
measured center; these support only what a center's answers need.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import time
from typing import Any, Self

from bench.figures import Wrong

_PING, _CLOSE = 0x9, 0x8
_LONG = 126
UNAVAILABLE = 503


class Busy(Wrong):
    """The center requests a retry, as agents do."""


class HttpLine(asyncio.Protocol):
    """One persistent connection; one call at a time."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._buffer = b""
        #: When the call was sent, and when its answer was complete.
        self.sent_at = 0.0
        self.answered_at = 0.0

    @classmethod
    async def open(cls, host: str, port: int, headers: str) -> Self:
        """`headers`: lines that are sent with every call."""
        loop = asyncio.get_running_loop()
        head = f"Host: {host}:{port}\r\n{headers}"
        _, line = await loop.create_connection(lambda: cls(head), host, port)
        return line

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the center closed the connection"))

    async def post(self, path: str, body: bytes, more: str = "") -> bytes:
        """The body of a successful answer; raises Wrong for any other."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._buffer = b""
        head = f"POST {path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        self.sent_at = time.perf_counter()
        self._transport.write(head.encode() + body)
        status, content = await self._answer
        if status == UNAVAILABLE:
            raise Busy(f"{path}: {content[:300]!r}")
        if status >= 300:
            raise Wrong(f"{path} was answered with {status}: {content[:300]!r}")
        return content

    def data_received(self, data: bytes) -> None:
        self._buffer = data if not self._buffer else self._buffer + data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(_header(head, b"content-length"))
        if len(rest) < length or self._answer is None or self._answer.done():
            return
        self.answered_at = time.perf_counter()
        self._answer.set_result((int(head[9:12]), rest))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _header(head: bytes, name: bytes) -> bytes:
    _, _, after = head.lower().partition(b"\r\n" + name + b":")
    return after.partition(b"\r\n")[0].strip() or b"0"


class CommandLine(asyncio.Protocol):
    """A WebSocket that receives and answers pings. `opened` is done after the handshake."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard = 0
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    @classmethod
    async def open(cls, host: str, port: int, path: str, headers: str) -> Self:
        loop = asyncio.get_running_loop()
        transport, line = await loop.create_connection(cls, host, port)
        key = base64.b64encode(b"sixteen bytes ok").decode()
        upgrade = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{headers}{upgrade}"
        transport.write(f"{head}Sec-WebSocket-Version: 13\r\n\r\n".encode())
        await line.opened
        return line

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the center closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.opened.done():
            head, found, self._buffer = self._buffer.partition(b"\r\n\r\n")
            if not found:
                self._buffer = head
                return
            self._shake_hands(head)
        while (frame := self._frame()) is not None:
            self._hear(*frame)

    def _shake_hands(self, head: bytes) -> None:
        if b" 101 " in head.partition(b"\r\n")[0]:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(Wrong(f"no WebSocket: {head[:200]!r}"))

    def _frame(self) -> tuple[int, bytes] | None:
        """(kind, payload) of a complete frame. Frames of a center are short and not masked."""
        data = self._buffer
        if len(data) < 2:
            return None
        length, at = data[1], 2
        if length == _LONG:
            if len(data) < 4:
                return None
            length, at = struct.unpack_from(">H", data, 2)[0], 4
        if len(data) < at + length:
            return None
        self._buffer = data[at + length :]
        return data[0] & 0xF, data[at : at + length]

    def _hear(self, kind: int, payload: bytes) -> None:
        if kind == _PING and self._transport is not None:
            # A pong with the mask 0, which does not change the payload.
            self._transport.write(bytes([0x8A, 0x80 | len(payload)]) + bytes(4) + payload)
        elif kind not in {_PING, _CLOSE}:
            self.heard += 1

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
