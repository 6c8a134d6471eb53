"""The bus contract on every backend, and what each backend promises beyond it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from redis.asyncio import Redis

from skep.bus.memory import UNREAD_SIGNALS, MemoryBus, MemorySignals
from skep.bus.redis import RedisBus
from skep.bus.registry import open_bus
from skep.errors import BusDown, ConfigurationError
from skep.model.lane import Lane
from skep.testing.clock import ManualClock
from skep.testing.conformance.bus.suite import (
    ANYBODY,
    DOWNWARD,
    LIMITS,
    BusConformance,
    block,
    closing,
    hearing,
    numbers,
    soon,
)


@pytest.fixture
async def redis_bus(redis_url: str) -> AsyncIterator[RedisBus]:
    async with closing(RedisBus(redis_url, LIMITS)) as bus:
        await bus.open()
        yield bus


@pytest.fixture
async def raw(redis_url: str) -> AsyncIterator[Redis]:
    """The same database, without our bus in between."""
    async with Redis.from_url(redis_url) as client:
        yield client


class TestMemory(BusConformance):
    @pytest.fixture
    async def bus(self) -> MemoryBus:
        bus = MemoryBus(LIMITS)
        await bus.open()
        return bus

    async def test_no_call_ever_waits(self) -> None:
        """The simulation needs it: each call ends before any other task runs."""
        bus = MemoryBus(LIMITS, ManualClock())
        calls = (
            lambda: bus.lanes.push([block(1)]),
            lambda: bus.lanes.pop(DOWNWARD, ANYBODY, 1),
            lambda: bus.lanes.remove([1]),
            bus.lanes.sizes,
            bus.lanes.ids,
            bus.lanes.clear,
            lambda: bus.signals.publish("a", b""),
            lambda: bus.logs.append("a", [{"b": "c"}]),
            lambda: bus.logs.read("a"),
            lambda: bus.lead("a", "b", 1),
            bus.epoch,
            bus.ping,
            bus.open,
            bus.close,
        )
        for call in calls:
            with pytest.raises(StopIteration):
                call().send(None)

    async def test_a_slow_listener_loses_the_oldest(self) -> None:
        signals = MemorySignals()
        async with aclosing(signals.listen("a")) as listener:
            first = asyncio.ensure_future(anext(listener))
            await asyncio.sleep(0)
            for number in range(UNREAD_SIGNALS + 5):
                await signals.publish("a", b"%d" % number)
            assert await first == ("a", b"5")

    async def test_a_turn_follows_the_clock_it_was_given(self, clock: ManualClock) -> None:
        bus = MemoryBus(LIMITS, clock)
        assert await bus.lead("t", "a", 5)
        clock.advance(4.9)
        assert not await bus.lead("t", "b", 5)
        clock.advance(0.2)
        assert await bus.lead("t", "b", 5)

    async def test_empty_queues_of_lost_agents_are_not_kept(self) -> None:
        bus = MemoryBus(LIMITS)
        for number in range(100):
            await bus.lanes.push([block(number, target=f"agent-{number}")])
            await bus.lanes.remove([number])
        assert bus._lanes._queues == {}


class TestRedis(BusConformance):
    @pytest.fixture
    async def bus(self, redis_bus: RedisBus) -> RedisBus:
        return redis_bus

    async def test_two_centers_share_one_order(self, redis_bus: RedisBus, redis_url: str) -> None:
        """C9: what one center pushes, another pops; both see one epoch and one turn."""
        async with closing(RedisBus(redis_url, LIMITS)) as other:
            await other.open()
            await redis_bus.lanes.push([block(1, 5), block(2, 4)])
            assert numbers(await other.lanes.pop(DOWNWARD, ANYBODY, 9)) == [2, 1]
            assert await other.epoch() == await redis_bus.epoch()
            assert await redis_bus.lead("t", "center-1", 60)
            assert not await other.lead("t", "center-2", 60)
            async with hearing(other.signals, "a") as heard:
                await redis_bus.signals.publish("a", b"hello")
                assert await soon(heard) == b"hello"

    async def test_nothing_is_left_behind(self, redis_bus: RedisBus, raw: Redis) -> None:
        """Lanes that are empty again leave no key per agent."""
        targets = [f"agent-{number}" for number in range(20)]
        await redis_bus.lanes.push([block(n, target=t) for n, t in enumerate(targets)])
        await redis_bus.lanes.pop(DOWNWARD, targets[:10], 99)
        await redis_bus.lanes.remove(range(10, 20))
        assert set(await raw.keys()) == {b"skep:{lanes}:counts", b"skep:{lanes}:epoch"}
        await redis_bus.lanes.clear()
        assert await raw.keys() == [b"skep:{lanes}:epoch"]

    async def test_scripts_that_redis_has_forgotten(self, redis_bus: RedisBus, raw: Redis) -> None:
        """A restart or SCRIPT FLUSH between two calls goes unnoticed."""
        await redis_bus.lanes.push([block(1)])
        await raw.script_flush()
        assert numbers(await redis_bus.lanes.pop(DOWNWARD, ANYBODY, 9)) == [1]

    @pytest.mark.parametrize("poison", [b"", b"\xc1", b"cos\nsystem\n", b"\x94\x03\x0a\xa0\x01"])
    async def test_poisoned_entries_are_dropped(
        self, redis_bus: RedisBus, raw: Redis, poison: bytes
    ) -> None:
        """Fault 69: a value that is not ours is never run and stops no block."""
        await redis_bus.lanes.push([block(1), block(2)])
        await raw.hset("skep:{lanes}:blocks", "1", poison)
        assert await redis_bus.lanes.pop(DOWNWARD, ANYBODY, 9) == [block(2)]
        assert await redis_bus.lanes.ids() == set()

    async def test_poisoned_entries_can_be_removed_and_cleared(
        self, redis_bus: RedisBus, raw: Redis
    ) -> None:
        """Fault 69."""
        await raw.hset("skep:{lanes}:blocks", mapping={"1": b"\xc1", "2": b"\xc1", "x": b""})
        assert await redis_bus.lanes.ids() == {1, 2}
        assert await redis_bus.lanes.remove([1]) == 1
        await redis_bus.lanes.clear()
        assert await redis_bus.lanes.ids() == set()

    async def test_foreign_lines_in_a_log_do_not_stop_a_reader(
        self, redis_bus: RedisBus, raw: Redis
    ) -> None:
        """Fault 69."""
        await raw.xadd("skep:log:run", {"some": "thing"})
        await redis_bus.logs.append("run", [{"message": "ours"}])
        lines = [line for _, line in await redis_bus.logs.read("run")]
        assert len(lines) == 2
        assert lines[1] == {"message": "ours"}

    async def test_a_cancelled_call_leaves_no_answer_for_the_next(
        self, redis_bus: RedisBus
    ) -> None:
        """An agent that hangs up in its long poll must not hand its answer to another."""
        await redis_bus.logs.append("run", [{"n": "1"}])
        for turns in range(40):
            calls = [asyncio.create_task(redis_bus.logs.read("run")) for _ in range(4)]
            for _ in range(turns % 10):
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            answers = await asyncio.gather(*(redis_bus.lanes.sizes() for _ in range(4)))
            assert answers == [dict.fromkeys(Lane, 0)] * 4
            await asyncio.gather(*calls, return_exceptions=True)

    async def test_a_redis_that_may_evict_lanes_is_refused(
        self, redis_bus: RedisBus, raw: Redis
    ) -> None:
        """A part of a lane that vanishes alone would keep its blocks from ever being offered."""
        await raw.config_set("maxmemory-policy", "allkeys-lru")
        await raw.config_set("maxmemory", "1gb")
        try:
            with pytest.raises(ConfigurationError, match="noeviction"):
                await redis_bus.open()
        finally:
            await raw.config_set("maxmemory", "0")
            await raw.config_set("maxmemory-policy", "noeviction")

    async def test_databases_of_one_server_do_not_hear_each_other(
        self, redis_bus: RedisBus, redis_url: str
    ) -> None:
        """Pub/sub of Redis spans all databases; ours must not."""
        server, _, number = redis_url.rpartition("/")
        other = RedisBus(f"{server}/{(int(number) + 1) % 16}", LIMITS)
        async with closing(other), hearing(redis_bus.signals, "a") as heard:
            await other.signals.publish("a", b"not for you")
            await redis_bus.signals.publish("a", b"for you")
            assert await soon(heard) == b"for you"


async def test_a_redis_that_is_not_there() -> None:
    """The error names the place and never the password."""
    async with closing(open_bus("redis://skep:s3cret@127.0.0.1:1/3", LIMITS)) as bus:
        with pytest.raises(BusDown, match=r"127\.0\.0\.1:1 ") as caught:
            await bus.open()
        assert "s3cret" not in str(caught.value)
        assert bus.describe() == "redis://127.0.0.1:1/3"


async def test_a_wrong_password(redis_url: str) -> None:
    async with closing(
        open_bus(redis_url.replace("redis://", "redis://nobody:s3cret@"), LIMITS)
    ) as bus:
        with pytest.raises(BusDown) as caught:
            await bus.open()
        assert "s3cret" not in str(caught.value)


async def test_urls_choose_the_bus() -> None:
    assert isinstance(open_bus("memory://", LIMITS), MemoryBus)
    assert open_bus("rediss://[::1]:7000", {Lane.LOW: 1}).describe() == "rediss://[::1]:7000/0"


@pytest.mark.parametrize("url", ["", "kafka://x", "http://x", "redis://x:port/0"])
async def test_urls_that_mean_no_bus(url: str) -> None:
    with pytest.raises(ConfigurationError, match="bus"):
        open_bus(url, LIMITS)


async def test_without_the_redis_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named when it is missing."""
    monkeypatch.delitem(sys.modules, "skep.bus.redis")
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'skep\[redis\]'"):
        open_bus("redis://127.0.0.1", LIMITS)


async def test_a_caller_that_is_cancelled_in_a_call_ends(redis_bus: RedisBus) -> None:
    """C9, fault 47: a center's loops end when it is stopped, at whatever point of a call they
    are. The client's own time limit lost one in two of these, and such a center never ended."""

    async def go_on() -> None:
        while True:
            await redis_bus.lead("dispatch", "one", 2.0)
            await redis_bus.lanes.sizes()

    for steps in range(400):
        loops = [asyncio.create_task(go_on()) for _ in range(1 + steps % 3)]
        for _ in range(steps % 23):
            await asyncio.sleep(0)
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops, timeout=10)
        assert [loop.cancelled() for loop in loops] == [True] * len(loops)
