"""The fault proxy does what it says, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from skep.testing.faultproxy import TO_CALLER, TO_SERVER, FaultProxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Shouter:
    """A server that answers each line in capitals and remembers what it heard."""

    def __init__(self) -> None:
        self.heard = b""
        self.pieces: list[int] = []
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                self.heard += data
                self.pieces.append(len(data))
                writer.write(data.upper())
        except ConnectionResetError:
            pass
        finally:
            self.ended.set()
            writer.close()


@pytest.fixture
async def shouter() -> Shouter:
    return Shouter()


@pytest.fixture
async def proxy(shouter: Shouter) -> AsyncIterator[FaultProxy]:
    server = await asyncio.start_server(shouter.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, FaultProxy(port) as made:
        yield made


async def dial(proxy: FaultProxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def say(streams: Streams, words: bytes) -> bytes:
    """What comes back; b"" when the connection was ended."""
    reader, writer = streams
    writer.write(words)
    async with asyncio.timeout(5):
        return await reader.read(1000)


async def silent(streams: Streams) -> bool:
    try:
        async with asyncio.timeout(0.1):
            return await streams[0].read(1000) == b"no"
    except TimeoutError:
        return True


async def test_without_a_fault_it_only_passes_on(proxy: FaultProxy, shouter: Shouter) -> None:
    streams = await dial(proxy)
    assert await say(streams, b"hello") == b"HELLO"
    assert (proxy.connections, proxy.open) == (1, 1)
    streams[1].write_eof()
    async with asyncio.timeout(5):
        assert await streams[0].read() == b""
        await shouter.ended.wait()
    streams[1].close()


async def test_latency_holds_up_both_ways(proxy: FaultProxy) -> None:
    loop = asyncio.get_running_loop()
    proxy.latency = 0.05
    streams = await dial(proxy)
    began = loop.time()
    assert await say(streams, b"a") == b"A"
    assert loop.time() - began >= 0.1
    streams[1].close()


async def test_jitter_comes_on_top_by_chance(proxy: FaultProxy) -> None:
    proxy.latency, proxy.jitter = 0.01, 0.05
    delays = [proxy.delay() for _ in range(200)]
    assert 0.01 <= min(delays) < 0.02
    assert 0.05 < max(delays) <= 0.06
    streams = await dial(proxy)
    assert await say(streams, b"a") == b"A"
    streams[1].close()


async def test_a_narrow_line_takes_its_time(proxy: FaultProxy, shouter: Shouter) -> None:
    loop = asyncio.get_running_loop()
    proxy.bandwidth = 10_000
    streams = await dial(proxy)
    began = loop.time()
    streams[1].write(b"a" * 1500)
    async with asyncio.timeout(5):
        assert await streams[0].readexactly(1500) == b"A" * 1500
    assert loop.time() - began >= 0.15
    streams[1].close()


async def test_slices_come_one_by_one_and_in_order(proxy: FaultProxy, shouter: Shouter) -> None:
    proxy.slices = 3
    streams = await dial(proxy)
    streams[1].write(b"abcdefgh")
    async with asyncio.timeout(5):
        assert await streams[0].readexactly(8) == b"ABCDEFGH"
    assert shouter.heard == b"abcdefgh"
    assert shouter.pieces == [3, 3, 2]
    streams[1].close()


async def test_a_lost_answer_was_a_request_that_was_heard(
    proxy: FaultProxy, shouter: Shouter
) -> None:
    proxy.cut(TO_CALLER, when=b"lose")
    streams = await dial(proxy)
    assert await say(streams, b"keep") == b"KEEP"
    with pytest.raises(ConnectionResetError):
        await say(streams, b"lose this")
    assert shouter.heard == b"keeplose this"
    again = await dial(proxy)
    assert await say(again, b"lose this") == b"LOSE THIS"
    assert proxy.struck == 1
    again[1].close()


async def test_a_torn_request_arrives_in_part(proxy: FaultProxy, shouter: Shouter) -> None:
    proxy.cut(TO_SERVER, after=3)
    streams = await dial(proxy)
    with pytest.raises(ConnectionResetError):
        await say(streams, b"abcdef")
    async with asyncio.timeout(5):
        await shouter.ended.wait()
    assert shouter.heard in {b"abc", b""}, "an RST may overtake what was sent before it"


@pytest.mark.parametrize("way", [TO_SERVER, TO_CALLER])
async def test_a_partition_delivers_late(proxy: FaultProxy, shouter: Shouter, way: str) -> None:
    streams = await dial(proxy)
    assert await say(streams, b"a") == b"A"
    proxy.hold(TO_SERVER if way == TO_SERVER else TO_CALLER)
    streams[1].write(b"b")
    assert await silent(streams)
    assert shouter.heard == (b"a" if way == TO_SERVER else b"ab")
    proxy.heal()
    assert await say(streams, b"") == b"B"
    streams[1].close()


async def test_a_black_hole_swallows_even_the_end(proxy: FaultProxy, shouter: Shouter) -> None:
    old = await dial(proxy)
    assert await say(old, b"a") == b"A"
    proxy.hold()
    new = await dial(proxy)
    new[1].write(b"b")
    old[1].close()
    assert await silent(new)
    assert not shouter.ended.is_set()
    proxy.heal()
    assert await say(new, b"") == b"B"
    async with asyncio.timeout(5):
        await shouter.ended.wait()
    new[1].close()


async def test_only_calls_that_are_named_are_held(proxy: FaultProxy) -> None:
    proxy.hold_calls(b"report")
    held, free = await dial(proxy), await dial(proxy)
    held[1].write(b"report")
    assert await silent(held)
    assert await say(free, b"beat") == b"BEAT"
    proxy.heal()
    assert await say(held, b"") == b"REPORT"
    held[1].close()
    free[1].close()


async def test_flapping_refuses_and_takes_again(proxy: FaultProxy) -> None:
    streams = await dial(proxy)
    assert await say(streams, b"a") == b"A"
    flapping = asyncio.create_task(proxy.flap(up=0.1, down=0.1, times=2))
    with pytest.raises(ConnectionResetError):
        await streams[0].read(1000)
    await flapping
    again = await dial(proxy)
    assert await say(again, b"b") == b"B"
    again[1].close()
