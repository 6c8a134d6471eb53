"""The way out of a box: a small HTTP proxy that asks the egress policy. Runs on agents.

A box has a loopback of its own and no other network. The listener at which its programs
find their proxy was made inside and handed out to us, so that every connection of user
code is made here, to an address that was checked. It serves one box and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from skep.downloaders.egress_policy import EgressPolicy
from skep.model.hosts.named_places import place_of

CONNECTIONS = 64
RESOLVERS = 4
HEAD_LIMIT = 32 * 1024
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 20.0
PIECE = 64 * 1024
_PORTS = {"http": 80}
_HOP_HEADERS = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")


class Refused(Exception):
    """(status line, why)."""


class EgressProxy:
    """`open` it, and `close` it when the box has ended."""

    def __init__(self, listener: socket.socket, egress: EgressPolicy) -> None:
        self._listener = listener
        self._egress = egress
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()
        # Of our own: slow name servers must not keep the agent from its other work.
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="door")

    async def open(self) -> None:
        self._listener.setblocking(False)
        self._server = await asyncio.start_server(
            self._come_in, sock=self._listener, limit=HEAD_LIMIT
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        else:
            self._listener.close()
        for guest in self._guests:
            guest.cancel()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def _come_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._guests) >= CONNECTIONS:
            writer.transport.abort()
            return
        guest = asyncio.ensure_future(self._serve(reader, writer))
        self._guests.add(guest)
        guest.add_done_callback(self._guests.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass(reader, writer)
        except Refused as refused:
            line, why = refused.args
            writer.write(f"HTTP/1.1 {line}\r\nConnection: close\r\n\r\n{why}\n".encode())
            writer.close()  # what was written still goes out
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        else:
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        host, port, forward = read_target(head)
        there, back = await self._connect(host, port)
        if forward:
            back.write(forward)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.transport.abort()

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To an address that the policy allows, and to no name."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await loop.run_in_executor(self._resolvers, _resolve, host, port)
                addresses = [str(one[4][0]) for one in found]
                place = place_of(host, port)
                why = [self._egress.check(address, port, place) for address in addresses]
                if None not in why:
                    raise Refused("403 Forbidden", why[0] or "no address")
                return await asyncio.open_connection(addresses[why.index(None)], port)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise Refused("502 Bad Gateway", f"{host}: {error}") from error


def read_target(head: bytes) -> tuple[str, int, bytes]:
    """(host, port, what to send on); nothing is sent on for CONNECT. Raises Refused."""
    line, _, rest = head.partition(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise Refused("400 Bad Request", str(error)) from error
    if not parts.hostname or port is None:
        raise Refused("400 Bad Request", "only http:// URLs and CONNECT are served here")
    if method == "CONNECT":
        return parts.hostname, port, b""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [one for one in rest.split(b"\r\n") if one and not one.lower().startswith(_HOP_HEADERS)]
    first = f"{method} {path} {version}".encode()
    # One request for one connection: the next one may be for another host.
    return parts.hostname, port, b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


def _resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE):
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
