"""Redis killed, frozen, flushed and started again, while centers use it as their bus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from skep.bus.redis import RedisBus
from skep.errors import BusDown
from skep.testing import servers
from skep.testing.conformance.bus.suite import (
    ANYBODY,
    DOWNWARD,
    LIMITS,
    block,
    closing,
    hearing,
    numbers,
    soon,
)
from skep.testing.polling import until

#: No caller of the bus may wait longer than this, whatever Redis does.
HELD_SECONDS = 10.0
#: For a listener to find its way back; its back-off is capped at two seconds.
RETURN_SECONDS = 10.0


@pytest.fixture
def redis() -> Iterator[servers.Redis]:
    """A server of this test alone, because it will be killed."""
    with servers.redis() as server:
        yield server


@pytest.fixture
async def bus(redis: servers.Redis) -> AsyncIterator[RedisBus]:
    async with closing(RedisBus(redis.url, LIMITS)) as bus:
        await bus.open()
        yield bus


def every_call(bus: RedisBus) -> list[Callable[[], Awaitable[Any]]]:
    return [
        bus.ping,
        bus.epoch,
        bus.open,
        bus.lanes.sizes,
        bus.lanes.ids,
        bus.lanes.clear,
        lambda: bus.lanes.push([block(1)]),
        lambda: bus.lanes.pop(DOWNWARD, ANYBODY, 1),
        lambda: bus.lanes.remove([1]),
        lambda: bus.signals.publish("nobody", b""),
        lambda: bus.logs.append("a", [{"b": "c"}]),
        lambda: bus.logs.read("a"),
        lambda: bus.lead("a", "b", 1),
    ]


async def assert_down(call: Callable[[], Awaitable[Any]], port: int) -> None:
    """It fails in our words and in time."""
    began = time.monotonic()
    with pytest.raises(BusDown, match=f"127.0.0.1:{port}"):
        await call()
    assert time.monotonic() - began < HELD_SECONDS


async def use_until_down(bus: RedisBus, first: asyncio.Event) -> BusDown:
    """Push and pop without a pause, until the bus says that it is down."""
    for number in range(10**9):
        try:
            await bus.lanes.push([block(number)])
            await bus.lanes.pop(DOWNWARD, ANYBODY, 1)
        except BusDown as down:
            return down
        first.set()
    raise AssertionError("not reached")


async def heard_again(bus: RedisBus, heard: asyncio.Queue[bytes]) -> bytes:
    """Call until the listener answers: at first it may still be away."""
    async with asyncio.timeout(RETURN_SECONDS):
        while heard.empty():
            await bus.signals.publish("a", b"again")
            await asyncio.sleep(0.01)
    return await soon(heard)


async def test_killed_in_use_and_started_again(redis: servers.Redis, bus: RedisBus) -> None:
    """Fault 26: BusDown at once while it is away, then the same bus works, with a new epoch."""
    epoch = await bus.epoch()
    async with hearing(bus.signals, "a") as heard:
        first = asyncio.Event()
        users = [asyncio.create_task(use_until_down(bus, first)) for _ in range(8)]
        await first.wait()
        redis.kill()
        async with asyncio.timeout(HELD_SECONDS):
            downs = await asyncio.gather(*users)
        assert all(f"127.0.0.1:{redis.port}" in str(down) for down in downs)
        for call in every_call(bus):
            await assert_down(call, redis.port)
        redis.start()
        for call in every_call(bus):
            await call()
        assert await bus.epoch() != epoch
        assert await bus.lanes.ids() == set()
        await bus.lanes.push([block(7)])
        assert numbers(await bus.lanes.pop(DOWNWARD, ANYBODY, 9)) == [7]
        assert await heard_again(bus, heard) == b"again"


async def test_idle_connections_survive_a_restart_unnoticed(
    redis: servers.Redis, bus: RedisBus
) -> None:
    """Fault 26: calls after an unnoticed restart do not fail on dead connections."""
    await asyncio.gather(*(bus.ping() for _ in range(16)))
    for _ in range(5):
        redis.kill()
        redis.start()
        await asyncio.gather(*(bus.ping() for _ in range(16)))


async def test_frozen(redis: servers.Redis, bus: RedisBus) -> None:
    """Fault 26: a Redis that keeps its connections and answers nothing blocks no caller."""
    epoch = await bus.epoch()
    await bus.lanes.push([block(1)])
    redis.pause()
    await asyncio.gather(*(assert_down(call, redis.port) for call in every_call(bus)[:5] * 8))
    redis.resume()
    await bus.ping()
    assert await bus.epoch() == epoch
    assert await bus.lanes.ids() == {1}


async def test_a_listener_leaves_a_frozen_redis(
    redis: servers.Redis,
    bus: RedisBus,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Fault 26: a connection that only looks alive is given up, and made anew."""
    monkeypatch.setattr("skep.bus.redis.QUIET_SECONDS", 0.1)
    monkeypatch.setattr("skep.bus.redis.ANSWER_SECONDS", 0.2)
    async with hearing(bus.signals, "a") as heard:
        assert "interrupted" not in caplog.text
        redis.pause()
        await until(lambda: "interrupted" in caplog.text, seconds=RETURN_SECONDS)
        redis.resume()
        assert await heard_again(bus, heard) == b"again"


async def test_flushed_in_use(redis: servers.Redis, bus: RedisBus) -> None:
    """Fault 27: FLUSHALL changes the epoch, and the lanes take and give as before."""
    epoch = await bus.epoch()
    await bus.lanes.push([block(1), block(2, target="a")])
    redis.execute("FLUSHALL")
    assert await bus.lanes.pop(DOWNWARD, ["", "a"], 9) == []
    assert await bus.lanes.push([block(2)]) == []
    changed = await bus.epoch()
    assert changed != epoch
    assert await bus.epoch() == changed
    assert await bus.lanes.ids() == {2}


async def test_all_centers_agree_on_the_new_epoch(redis: servers.Redis, bus: RedisBus) -> None:
    """Fault 27, C9: the first caller after a loss makes the epoch, and all see that one."""
    redis.execute("FLUSHALL")
    async with AsyncExitStack() as stack:
        others = [closing(RedisBus(redis.url, LIMITS)) for _ in range(4)]
        centers = [bus, *[await stack.enter_async_context(other) for other in others]]
        epochs = await asyncio.gather(*(center.epoch() for center in centers))
    assert len(set(epochs)) == 1


async def test_a_restart_from_disk_counts_as_a_loss() -> None:
    """Fault 27: what Redis wrote to disk may lack its last second, so the epoch changes."""
    with servers.redis(durable=True) as server:
        async with closing(RedisBus(server.url, LIMITS)) as bus:
            epoch = await bus.epoch()
            await bus.lanes.push([block(1)])
            server.kill()
            server.start()
            assert await bus.lanes.ids() == {1}
            assert await bus.epoch() != epoch


async def test_opened_while_redis_is_away(redis: servers.Redis) -> None:
    """Fault 26: a center may start first; its bus works as soon as Redis does."""
    redis.kill()
    async with closing(RedisBus(redis.url, LIMITS)) as bus:
        await assert_down(bus.open, redis.port)
        redis.start()
        await bus.open()
        await bus.ping()
