"""A small HTTP proxy between a sandbox and the network, which applies the egress policy. Agents.

A sandbox has its own loopback and no other network. The listener of its proxy is created inside
and passed to this process, so that every connection of user code is made here, to a checked
address. It serves one sandbox and ends with it.
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
    """Call `open`, and `close` when the sandbox has ended."""

    def __init__(self, listener: socket.socket, egress: EgressPolicy) -> None:
        self._listener = listener
        self._egress = egress
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Separate threads: slow name servers must not delay other work of the agent.
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="egress-proxy")

    async def open(self) -> None:
        self._listener.setblocking(False)
        self._server = await asyncio.start_server(
            self._accept, sock=self._listener, limit=HEAD_LIMIT
        )

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        else:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass(reader, writer)
        except Refused as refused:
            line, why = refused.args
            writer.write(f"HTTP/1.1 {line}\r\nConnection: close\r\n\r\n{why}\n".encode())
            writer.close()  # written data is still sent
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
        """Connect to an address that the policy allows, never to a name."""
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
    """(host, port, bytes to forward); b"" for CONNECT. Raises Refused."""
    line, _, rest = head.partition(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise Refused("400 Bad Request", str(error)) from error
    if not parts.hostname or port is None:
        raise Refused("400 Bad Request", "only http:// URLs and CONNECT are supported")
    if method == "CONNECT":
        return parts.hostname, port, b""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [one for one in rest.split(b"\r\n") if one and not one.lower().startswith(_HOP_HEADERS)]
    first = f"{method} {path} {version}".encode()
    # One request per connection: the next one may be for another host.
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
