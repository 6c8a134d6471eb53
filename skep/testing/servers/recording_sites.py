"""Web servers that record the times of requests: one for each address of 127.0.1.0/24.

Each address is a separate host, all on one port, so that politeness can be measured at the server.
It runs inside a test, or alone: `python -m skep.testing.servers.recording_sites`. Never expose it
to a network.

    /starts on 127.0.1.1   {host: [times by the monotonic clock]} of all other requests
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import uvloop

from skep.runtime.clock import Clock, SystemClock

LATENCY = 0.01
PEEK = "/starts"


class Ask(NamedTuple):
    """One request as received."""

    at: float
    host: str
    path: str
    #: The port of the caller, which identifies its connection.
    peer: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a host, after `wait` seconds."""

    body: bytes = b"<title>here</title>\n"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = LATENCY

    def encoded(self) -> bytes:
        headers = {"Content-Type": "text/html", "Content-Length": str(len(self.body))}
        lines = [f"{name}: {value}" for name, value in {**headers, **self.headers}.items()]
        return "\r\n".join([f"HTTP/1.1 {self.status} So", *lines, "", ""]).encode() + self.body


class Recorder:
    """`hosts` servers. `answer` returns the response; None closes the connection."""

    def __init__(self, hosts: int = 1, clock: Clock | None = None) -> None:
        self.hosts = [f"127.0.1.{number}" for number in range(1, hosts + 1)]
        self.asks: list[Ask] = []
        self.running: dict[str, int] = dict.fromkeys(self.hosts, 0)
        #: Maximum concurrent downloads of each host.
        self.most: dict[str, int] = dict.fromkeys(self.hosts, 0)
        self.answer: Callable[[Ask], Reply | None] = _page
        self.port = 0
        self._clock = clock or SystemClock()
        self._servers: list[asyncio.Server] = []
        self._open: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}

    async def __aenter__(self) -> Self:
        first = await asyncio.start_server(self._serve, self.hosts[0], 0, backlog=256)
        self.port = int(first.sockets[0].getsockname()[1])
        self._servers = [first]
        if others := self.hosts[1:]:
            more = await asyncio.start_server(self._serve, others, self.port, backlog=256)
            self._servers.append(more)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        open_now = dict(self._open)
        for writer in open_now:
            writer.transport.abort()
        await asyncio.gather(*(task for task in open_now.values() if task is not None))
        for server in self._servers:
            await server.wait_closed()

    def url(self, host: int | str, path: str = "/") -> str:
        """The URL of a host, given by number from 1 or by address."""
        address = host if isinstance(host, str) else self.hosts[host - 1]
        return f"http://{address}:{self.port}{path}"

    def starts(self, host: str | None = None, since: float = 0.0) -> dict[str, list[float]]:
        """The times of requests for each host."""
        found: dict[str, list[float]] = {}
        for ask in self.asks:
            if host in {None, ask.host} and ask.at >= since:
                found.setdefault(ask.host, []).append(ask.at)
        return found

    def paths(self, host: str | None = None) -> list[str]:
        return [ask.path for ask in self.asks if host in {None, ask.host}]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = asyncio.current_task()
        host = writer.get_extra_info("sockname")[0]
        with suppress(OSError, asyncio.IncompleteReadError):
            while await self._exchange(reader, writer, host):
                pass
        del self._open[writer]
        writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        path, peer = head.split(b" ", 2)[1].decode("latin-1"), writer.get_extra_info("peername")[1]
        ask = Ask(self._clock.monotonic(), host, path, peer)
        if ask.path == PEEK:
            writer.write(Reply(json.dumps(self.starts()).encode()).encoded())
            return True
        self.asks.append(ask)
        self.running[host] += 1
        self.most[host] = max(self.most[host], self.running[host])
        try:
            reply = self.answer(ask)
            if reply is None:
                return False
            await self._clock.sleep(reply.wait)
            writer.write(reply.encoded())
        finally:
            self.running[host] -= 1
        return True


def most_in_a_second(starts: Iterable[float], second: float = 1.0) -> int:
    """The maximum number of these times in any window of one second; a test on a busy machine may
    use a slightly shorter `second`."""
    window: deque[float] = deque()
    most = 0
    for at in sorted(starts):
        window.append(at)
        while at - window[0] >= second:
            window.popleft()
        most = max(most, len(window))
    return most


def _page(_ask: Ask) -> Reply:
    return Reply()


async def serve(hosts: int, latency: float) -> None:
    """Run until SIGTERM or SIGINT; the first line of output is the address of the first host."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with Recorder(hosts) as recorder:
        recorder.answer = lambda _: Reply(wait=latency)
        sys.stdout.write(f"{recorder.url(1, '')}\n")
        sys.stdout.flush()
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m skep.testing.servers.recording_sites", description=Recorder.__doc__
    )
    parser.add_argument("--hosts", type=int, default=1, help="number of hosts, from 127.0.1.1")
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds for each response")
    chosen = parser.parse_args()
    uvloop.run(serve(chosen.hosts, chosen.latency))


if __name__ == "__main__":
    main()
