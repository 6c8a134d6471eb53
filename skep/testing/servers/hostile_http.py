"""A real HTTP server whose responses are written byte by byte: valid, unusual or hostile ones.

It runs inside a test, on loopback only, and records the requests and the bytes that it could send.
A route is a coroutine that gets the request and the open connection; it may send anything, stall,
or reset the connection. Never expose it to a network.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from skep.downloaders.ports import Downloader, Fetched
from skep.model.request import Work

HEAD_LIMIT = 2**20


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as received; header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    #: The number of the connection, from 1.
    connection: int
    at: float


class HostileConnection:
    """One open connection, from the server's side."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        self.reader = reader
        self.number = number
        self.sent = 0
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Write, and wait until the other side reads it; raises when it is gone."""
        self._writer.write(data)
        await self._writer.drain()
        self.sent += len(data)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        plug: socket.socket = self._writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


#: Answers one request. The connection stays open unless the route closes it.
Route = Callable[[Asked, HostileConnection], Awaitable[None]]


def answer(body: bytes = b"", status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A complete, valid response."""
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers)]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def says(body: bytes = b"", status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Route:
    """A route with a fixed, valid response."""
    return sends(answer(body, status, headers))


def sends(data: bytes, *, then_close: bool = False, then_reset: bool = False) -> Route:
    """A route that sends exactly these bytes."""

    async def route(_asked: Asked, line: HostileConnection) -> None:
        await line.send(data)
        if then_close:
            line.close()
        if then_reset:
            # The bytes must be sent before the reset.
            await asyncio.sleep(0.02)
            line.reset()

    return route


def repeats(head: bytes, piece: bytes, pause: float = 0.0, times: int = 2**60) -> Route:
    """A route that sends a head and then repeats the same bytes."""

    async def route(_asked: Asked, line: HostileConnection) -> None:
        await line.send(head)
        for _ in range(times):
            await line.send(piece)
            # Also without a pause: the loop is shared with the test.
            await asyncio.sleep(pause)

    return route


def redirects(location: str, status: int = 302, body: bytes = b"") -> Route:
    """A route that redirects."""
    return says(body, status, [("Location", location)])


async def silence(_asked: Asked, line: HostileConnection) -> None:
    """A route that sends nothing, and waits until the other side closes the connection."""
    while await line.reader.read(65_536):
        pass


@dataclass
class HostileServer:
    """Routes by path, without the query; an unknown path gets a 404."""

    routes: dict[str, Route] = field(default_factory=dict)
    host: str = "127.0.0.1"
    asked: list[Asked] = field(default_factory=list)
    #: Bytes that could be sent, by path.
    sent: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    #: Active requests, and their maximum.
    busy: int = 0
    most_busy: int = 0

    async def __aenter__(self) -> Self:
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, self.host, 0, limit=HEAD_LIMIT)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def url(self, path: str) -> str:
        return self.origin + path

    def paths(self) -> list[str]:
        """Requested paths, in order."""
        return [asked.target for asked in self.asked]

    async def idle(self) -> None:
        """Wait until no request is active."""
        await self._idle.wait()

    async def disconnected(self) -> None:
        """Wait until every connection is closed on both sides."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close their sockets in the next iteration of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        line = HostileConnection(reader, writer, self.connections)
        try:
            while not writer.is_closing() and await self._serve_one(line):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The other side closed the connection, as many tests intend.
            pass
        except asyncio.CancelledError:
            # Only __aexit__ cancels; asyncio's streams do not support a cancelled handler.
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve_one(self, line: HostileConnection) -> bool:
        asked = await self._read(line)
        self.asked.append(asked)
        path = asked.target.partition("?")[0]
        route = self.routes.get(path, says(b"not here", 404))
        self.busy += 1
        self._idle.clear()
        self.most_busy = max(self.most_busy, self.busy)
        before = line.sent
        try:
            await route(asked, line)
        finally:
            self.busy -= 1
            self.sent[path] += line.sent - before
            if not self.busy:
                self._idle.set()
        return asked.headers.get("connection", "") != "close"

    async def _read(self, line: HostileConnection) -> Asked:
        head = await line.reader.readuntil(b"\r\n\r\n")
        start, *rest = head.decode("latin-1").split("\r\n")
        method, target, _ = start.split(" ", 2)
        pairs = (text.partition(":") for text in rest if text)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await line.reader.readexactly(int(headers.get("content-length", "0")))
        now = asyncio.get_running_loop().time()
        return Asked(method, target, headers, body, line.number, now)


async def fetch(downloader: Downloader, work: Work) -> Fetched:
    """Await one download."""
    future: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    downloader.start(work, _settle(future))
    return await future


async def fetch_all(downloader: Downloader, works: Sequence[Work]) -> list[Fetched]:
    """Many concurrent downloads; the results are in the order of the requests."""
    return list(await asyncio.gather(*(fetch(downloader, work) for work in works)))


def _settle(future: asyncio.Future[Fetched]) -> Callable[[Fetched], None]:
    """A second call is an error of the downloader, and set_result raises it."""
    return future.set_result
