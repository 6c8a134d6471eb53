"""A TCP proxy between callers and one server that causes faults on command.

It runs on the event loop of a test. Use its address instead of the server's, and switch faults on
and off during calls:

    async with FaultProxy(center_port) as proxy:
        proxy.latency, proxy.jitter = 0.2, 0.1 # seconds, each way; random jitter is added
        proxy.bandwidth = 20_000               # bytes per second, each way of each connection
        proxy.slices = 7                       # maximum bytes of one write
        proxy.hold(TO_SERVER)                  # one-way partition; `hold()` is a black hole
        proxy.heal()                           # held bytes arrive late, as in TCP
        proxy.cut(TO_CALLER, when=b"POST /x")  # the server executes it, its answer is lost
        proxy.reset()                          # RST to every open connection
        await proxy.flap(up=0.2, down=0.2, times=5)

It never changes, invents or reorders bytes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from skep.testing.listening_server import ListeningServer

CHUNK = 65536
HOST = "127.0.0.1"
#: Seconds between two slices, so that they are sent separately.
SLICE_PAUSE = 0.001
#: SO_LINGER with no time: close with RST and discard unsent bytes.
_ABORTIVE = struct.pack("ii", 1, 0)


class Way(StrEnum):
    """The direction of bytes."""

    TO_SERVER = "to the server"
    TO_CALLER = "to the caller"


TO_SERVER, TO_CALLER = Way.TO_SERVER, Way.TO_CALLER


@dataclass(slots=True)
class _Rule:
    """A fault for connections on which a caller sends `when`."""

    way: Way
    when: bytes
    after: int
    #: Connections that it may still affect; None = all.
    times: int | None
    #: Hold the rest until `heal`, instead of an RST.
    holds: bool


class FaultProxy(ListeningServer):
    """A proxy for the server at `target`, a port of this machine; `host` is its own address, and
    `rng` decides about jitter."""

    def __init__(
        self, target: int, port: int = 0, *, host: str = HOST, rng: Random | None = None
    ) -> None:
        self.target = target
        self.port = port
        self.host = host
        #: Seconds of delay, each way, and the maximum of the random addition.
        self.latency = 0.0
        self.jitter = 0.0
        #: Bytes per second, each way of each connection; 0 = no limit.
        self.bandwidth = 0
        #: Maximum bytes of one write; 0 = as received.
        self.slices = 0
        #: Addresses of callers.
        self.peers: set[str] = set()
        self._rng = rng or Random(1)  # noqa: S311 - a test repeats
        #: Times (monotonic) at which callers connected, including refused ones.
        self.arrivals: list[float] = []
        #: Number of times that a rule of `cut` or `hold_calls` applied.
        self.struck = 0
        self._refusing = False
        self._held: set[Way] = set()
        self._rules: list[_Rule] = []
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """Callers that connected since the start."""
        return len(self.arrivals)

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and end every connection."""
        if self._server is None:
            return
        self._server.close()
        ends = [link.ended.wait() for link in self._links]
        self.reset()
        await asyncio.gather(*ends)
        await self._server.wait_closed()
        self._server = None

    def hold(self, *ways: Way) -> None:
        """Forward nothing in these directions, not even the end of a connection.

        Without a direction it is a black hole. Callers are still accepted, but get no answer.
        """
        self._held = set(ways) or set(Way)

    def hold_calls(self, when: bytes, way: Way = TO_SERVER, after: int = 0) -> None:
        """A black hole for each connection on which a caller sends `when`."""
        self._rules.append(_Rule(way, when, after, None, holds=True))

    def cut(self, way: Way, after: int = 0, when: bytes = b"", times: int | None = 1) -> None:
        """RST to both sides at the first byte beyond `after`, counted from the place where a caller
        sends `when`; an empty `when` matches the next bytes.

        `cut(TO_CALLER)` forwards a request and loses its answer, `cut(TO_SERVER, 100)` cuts a
        request. `times` is the number of connections; None = all.
        """
        self._rules.append(_Rule(way, when, after, times, holds=False))

    def heal(self) -> None:
        """End every fault except slowness. Held bytes are forwarded."""
        self._refusing = False
        self._held.clear()
        self._rules.clear()
        for link in self._links:
            link.heal()

    def reset(self) -> None:
        """RST to both sides of every open connection."""
        for link in tuple(self._links):
            link.reset()

    def refuse(self) -> None:
        """As `reset`, also for each new connection, until `heal`."""
        self._refusing = True
        self.reset()

    async def flap(self, up: float, down: float, times: int) -> None:
        """Go down and up again, `times` times."""
        for _ in range(times):
            self.refuse()
            await asyncio.sleep(down)
            self.heal()
            await asyncio.sleep(up)

    def delay(self) -> float:
        """Seconds before the next bytes are forwarded."""
        return self.latency + self.jitter * self._rng.random() if self.jitter else self.latency

    def pieces(self, data: bytes) -> list[tuple[bytes, float]]:
        """The slices, and the pause before each."""
        size = self.slices or (max(1, self.bandwidth // 20) if self.bandwidth else len(data))
        pause = SLICE_PAUSE if self.slices else 0.0
        parts = [data[at : at + size] for at in range(0, len(data), max(1, size))]
        return [(one, max(pause, self._seconds_for(one))) for one in parts]

    def _seconds_for(self, part: bytes) -> float:
        return len(part) / self.bandwidth if self.bandwidth else 0.0

    def holds(self, way: Way) -> bool:
        return way in self._held

    def rules_for(self, said: bytes) -> list[_Rule]:
        """Rules that apply to a connection on which this was sent."""
        found = [rule for rule in self._rules if rule.when in said and rule.times != 0]
        for rule in found:
            self.struck += 1
            rule.times = rule.times - 1 if rule.times is not None else None
        return found

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.arrivals.append(time.monotonic())
        self.peers.add(str(writer.get_extra_info("peername")[0]))
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            if self._refusing:
                link.reset()
            else:
                await link.run()
        finally:
            self._links.discard(link)
            link.close()
            link.ended.set()


class _Link:
    """A caller's connection, and its connection to the server."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.ended = asyncio.Event()
        self._proxy = proxy
        self._reader = reader
        self._writers = [writer]
        self._closed = False
        self._wake = asyncio.Event()
        #: Bytes that may still be forwarded, and whether the rest is held or cut.
        self._budget: dict[Way, tuple[int, bool]] = {}
        self._held: set[Way] = set()

    async def run(self) -> None:
        await self._permitted(TO_SERVER)
        try:
            reader, writer = await asyncio.open_connection(HOST, self._proxy.target)
        except OSError:  # no server: the caller gets about the same error
            self.reset()
            return
        self._writers.append(writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(self._reader, writer, TO_SERVER))
            group.create_task(self._pump(reader, self._writers[0], TO_CALLER))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        try:
            while data := await reader.read(CHUNK):
                if way is TO_SERVER:
                    self._hear(data)
                await self._forward(data, writer, way)
            await self._permitted(way)
            if not writer.is_closing():
                writer.write_eof()
        except OSError:
            self.reset()

    def _hear(self, said: bytes) -> None:
        for rule in self._proxy.rules_for(said):
            self._budget[rule.way] = (rule.after, rule.holds)

    async def _forward(self, data: bytes, writer: asyncio.StreamWriter, way: Way) -> None:
        await self._permitted(way)
        allowed, holds = self._budget.get(way, (len(data), False))
        await self._write(data[:allowed], writer)
        if way in self._budget:
            self._budget[way] = (allowed - min(allowed, len(data)), holds)
        if allowed >= len(data):
            return
        if not holds:
            self.reset()
            return
        self._held.add(way)
        await self._permitted(way)
        await self._write(data[allowed:], writer)

    async def _write(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        for piece, pause in self._proxy.pieces(data):
            if pause:
                await asyncio.sleep(pause)
            if writer.is_closing():
                return
            writer.write(piece)
            await writer.drain()

    async def _permitted(self, way: Way) -> None:
        """Return when bytes may be forwarded, or the connection has ended."""
        if delay := self._proxy.delay():
            await asyncio.sleep(delay)
        while not self._closed and (way in self._held or self._proxy.holds(way)):
            self._wake.clear()
            await self._wake.wait()

    def heal(self) -> None:
        self._held.clear()
        self._budget.clear()
        self._wake.set()

    def close(self) -> None:
        """Close both sides after a normal end."""
        for writer in self._writers:
            writer.close()

    def reset(self) -> None:
        self._closed = True
        self._wake.set()
        for writer in self._writers:
            if not writer.transport.is_closing():
                # An RST, so that the other side is notified immediately, out of order.
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTIVE)
                writer.transport.abort()
