"""Callers that try to overload a center, in a separate process.

    python -m skep.testing.faults.hostile_callers HOST:PORT --seconds 30 --connections 200

A quarter of the connections each: an endless header, half a head, silence, a slow body. A
connection that the center closes is opened again. Prints the number of closed ones by kind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CHUNK = b"a" * 65536


async def endless_header(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
    while True:
        writer.write(CHUNK)
        await writer.drain()


async def half_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    await _until_closed(reader)


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await _until_closed(reader)


async def slow_body(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"POST /node/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n"
    )
    while not writer.is_closing():
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.2)
    raise ConnectionError


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


ATTACKS: tuple[Attack, ...] = (endless_header, half_a_head, silent, slow_body)


async def attack(host: str, port: int, kind: Attack, closed: Counter[str]) -> None:
    """Repeat until cancelled."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        try:
            await kind(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()
        closed[kind.__name__] += 1


async def attack_together(host: str, port: int, connections: int, seconds: float) -> Counter[str]:
    closed: Counter[str] = Counter()
    kinds = itertools.islice(itertools.cycle(ATTACKS), connections)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(attack(host, port, kind, closed))
    return closed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--connections", type=int, default=200)
    asked = parser.parse_args()
    host, _, port = asked.address.rpartition(":")
    done = asyncio.run(attack_together(host, int(port), asked.connections, asked.seconds))
    print(json.dumps(done))  # noqa: T201 - its result


if __name__ == "__main__":
    main()
