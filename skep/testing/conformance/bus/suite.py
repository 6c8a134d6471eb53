"""Conformance tests for buses. A backend subclasses them and supplies the fixture `bus`.

The bus is open and empty, with the limits `LIMITS`. A backend may run on a real server, so nothing
here uses its internals, and nothing waits for a fixed time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import pytest

from skep.bus.ports import Bus, Signals
from skep.errors import InvalidInput
from skep.model.block import BlockRef
from skep.model.lane import HIGHEST, LOWEST, Lane
from skep.testing.conformance.bus.model import ModelLanes
from skep.testing.polling import until

LIMITS = {Lane.SUPER: 1000, Lane.HIGH: 1000, Lane.MID: 2000, Lane.LOW: 3000}
DOWNWARD = tuple(Lane)
ANYBODY = ("",)
#: Seconds for work of another process; a healthy backend needs milliseconds.
PATIENCE = 10.0

AnyBus = TypeVar("AnyBus", bound=Bus)


def block(number: int, priority: int = 5, size: int = 10, target: str = "") -> BlockRef:
    return BlockRef(number, f"run-{number % 3}", priority, size, target)


def numbers(refs: Iterable[BlockRef]) -> list[int]:
    return [ref.id for ref in refs]


@asynccontextmanager
async def closing(bus: AnyBus) -> AsyncIterator[AnyBus]:
    """Close the bus also when a test fails; else warnings would hide the reason."""
    try:
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def hearing(signals: Signals, *channels: str) -> AsyncIterator[asyncio.Queue[bytes]]:
    """The messages on some channels, once the listener receives them.

    A listener starts at an unknown time, so messages are sent on a separate channel until it
    receives one.
    """
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    ready = asyncio.Event()

    async def hear() -> None:
        async for channel, payload in signals.listen("are-you-there", *channels):
            if channel == "are-you-there":
                ready.set()
            else:
                heard.put_nowait(payload)

    task = asyncio.create_task(hear())
    try:
        async with asyncio.timeout(PATIENCE):
            while not ready.is_set():
                await signals.publish("are-you-there", b"")
                await asyncio.sleep(0.002)
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def soon(heard: asyncio.Queue[bytes]) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await heard.get()


class LanesConformance:
    """Order, bounds and targets."""

    async def test_seven_priorities_leave_in_lane_order(self, bus: Bus) -> None:
        """D2: super, high, mid, low; in a lane even priorities at the head, odd at the tail."""
        arriving = [block(10 * p + n, p) for n in (1, 2) for p in range(HIGHEST, LOWEST + 1)]
        assert await bus.lanes.push(arriving) == []
        leaving = await bus.lanes.pop(DOWNWARD, ANYBODY, 100)
        assert numbers(leaving) == [-9, -8, 2, 1, 11, 12, 22, 21, 31, 32, 42, 41, 51, 52]

    async def test_refs_come_back_as_they_went_in(self, bus: Bus) -> None:
        refs = [
            BlockRef(2**62 + 1, "run.with-dots", -1, 1, "agent-ä:1"),
            BlockRef(2**62 + 2, "r", 5, 999, ""),
        ]
        await bus.lanes.push(refs)
        assert await bus.lanes.pop(DOWNWARD, ["agent-ä:1", ""], 5) == refs

    async def test_a_full_lane_refuses_and_the_others_do_not(self, bus: Bus) -> None:
        """D3: lanes are bounded in requests, and what does not fit comes back."""
        fits, too_much, small = block(1, 0, 950), block(2, 1, 51), block(3, 1, 50)
        other = block(4, -1, 1000)
        assert await bus.lanes.push([fits, too_much, small, other]) == [too_much]
        assert await bus.lanes.sizes() == {
            Lane.SUPER: 1000,
            Lane.HIGH: 1000,
            Lane.MID: 0,
            Lane.LOW: 0,
        }
        assert numbers(await bus.lanes.pop(DOWNWARD, ANYBODY, 2)) == [4, 1]
        assert await bus.lanes.push([too_much]) == []

    async def test_an_empty_lane_takes_any_block(self, bus: Bus) -> None:
        """D3: a block larger than its lane does not wait without end."""
        huge = block(1, -1, 5000)
        assert await bus.lanes.push([huge, block(2, -1, 1)]) == [block(2, -1, 1)]
        assert await bus.lanes.pop(DOWNWARD, ANYBODY, 9) == [huge]
        assert await bus.lanes.push([block(2, -1, 1)]) == []

    async def test_blocks_go_only_to_their_targets(self, bus: Bus) -> None:
        await bus.lanes.push(
            [block(1, 5, target="a"), block(2, 5), block(3, 5, target="b"), block(4, 4, target="b")]
        )
        assert await bus.lanes.targets() == {"a": 1, "": 1, "b": 2}
        assert await bus.lanes.pop(DOWNWARD, ["nobody"], 9) == []
        assert numbers(await bus.lanes.pop(DOWNWARD, ["a"], 9)) == [1]
        assert numbers(await bus.lanes.pop(DOWNWARD, ["", "b", "", "b"], 9)) == [4, 2, 3]
        assert await bus.lanes.pop(DOWNWARD, [], 9) == []

    async def test_head_order_is_exact_across_targets(self, bus: Bus) -> None:
        await bus.lanes.push(
            [block(n, 4 if n % 2 else 5, target="ab"[n % 3 % 2]) for n in range(9)]
        )
        assert numbers(await bus.lanes.pop(DOWNWARD, ["b", "a"], 99)) == [7, 5, 3, 1, 0, 2, 4, 6, 8]

    async def test_pop_follows_the_given_order(self, bus: Bus) -> None:
        await bus.lanes.push([block(n, priority) for n, priority in enumerate((-1, 1, 3, 5))])
        assert numbers(await bus.lanes.pop([Lane.LOW, Lane.SUPER], ANYBODY, 9)) == [3, 0]
        assert numbers(await bus.lanes.pop([Lane.MID, *DOWNWARD], ANYBODY, 1)) == [2]
        assert await bus.lanes.pop([], ANYBODY, 9) == []
        assert await bus.lanes.pop(DOWNWARD, ANYBODY, 0) == []
        assert numbers(await bus.lanes.pop(DOWNWARD, ANYBODY, 9)) == [1]

    async def test_a_block_that_is_there_stays_where_it_is(self, bus: Bus) -> None:
        await bus.lanes.push([block(1, 5), block(2, 5)])
        assert await bus.lanes.push([block(2, 4), block(1, -1, 9999, "x"), block(1, 5)]) == []
        assert (await bus.lanes.sizes())[Lane.LOW] == 20
        assert await bus.lanes.pop(DOWNWARD, ANYBODY, 9) == [block(1, 5), block(2, 5)]

    async def test_remove_takes_blocks_out_of_every_lane(self, bus: Bus) -> None:
        await bus.lanes.push([block(1, -1), block(2, 5, target="a"), block(3, 5), block(4, 0)])
        assert await bus.lanes.remove([1, 2, 77, 2]) == 2
        assert await bus.lanes.remove([]) == 0
        assert await bus.lanes.ids() == {3, 4}
        assert sum((await bus.lanes.sizes()).values()) == 20
        assert numbers(await bus.lanes.pop(DOWNWARD, ["", "a"], 9)) == [4, 3]

    async def test_a_scan_shows_every_entry_in_bounded_steps(self, bus: Bus) -> None:
        """E1: the data for the periodic comparison of lanes and store."""
        refs = [block(n, n % 6, 1, ("", "a")[n % 2]) for n in range(1, 701)]
        assert await bus.lanes.push(refs) == []
        found, cursor, steps = dict[int, BlockRef](), "", 0
        while steps == 0 or cursor:
            page, cursor = await bus.lanes.scan(cursor, 50)
            found |= {ref.id: ref for ref in page}
            steps += 1
            await bus.lanes.remove([1000 + steps])
        assert found == {ref.id: ref for ref in refs}
        assert steps > 3
        assert await bus.lanes.present([1, 700, 701, -5]) == {1, 700}
        assert await bus.lanes.present([]) == set()

    async def test_sizes_and_ids_of_nothing(self, bus: Bus) -> None:
        assert await bus.lanes.push([]) == []
        assert await bus.lanes.sizes() == dict.fromkeys(Lane, 0)
        assert await bus.lanes.ids() == set()
        assert await bus.lanes.targets() == {}
        assert await bus.lanes.scan("", 10) == ([], "")

    async def test_clear_forgets_all_and_shows_it(self, bus: Bus) -> None:
        """Fault 27: callers detect by the epoch that the lanes are empty."""
        before = await bus.epoch()
        await bus.lanes.push([block(1, 0), block(2, 5, target="a")])
        assert await bus.epoch() == before
        await bus.lanes.clear()
        assert await bus.epoch() != before
        assert await bus.lanes.ids() == set()
        assert await bus.lanes.sizes() == dict.fromkeys(Lane, 0)
        assert await bus.lanes.pop(DOWNWARD, ["", "a"], 9) == []
        assert await bus.lanes.push([block(2, 5)]) == []
        assert numbers(await bus.lanes.pop(DOWNWARD, ["", "a"], 9)) == [2]

    @pytest.mark.parametrize("seed", [1, 2, 3])
    async def test_five_hundred_random_operations_match_the_model(
        self, bus: Bus, seed: int
    ) -> None:
        """D2, D3: the same answers as plain lists, for any sequence of operations."""
        rng = Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
        model = ModelLanes(LIMITS)
        for _ in range(500):
            await _one_step(bus, model, rng)
            assert await bus.lanes.sizes() == model.sizes()
            assert await bus.lanes.ids() == model.ids()

    async def test_concurrent_poppers_never_share_a_block(self, bus: Bus) -> None:
        """Each push of a block is popped once."""
        handed: list[int] = []
        pushed = asyncio.Event()

        async def take(own: str) -> None:
            while True:
                refs = await bus.lanes.pop(DOWNWARD, ["", own], 3)
                handed.extend(numbers(refs))
                if not refs and pushed.is_set():
                    return
                await asyncio.sleep(0)

        async def give() -> None:
            waiting = [block(n, n % 6, 30, ("", "a", "b", "c", "d")[n % 5]) for n in range(400)]
            while waiting:
                waiting = await bus.lanes.push(waiting[:20]) + waiting[20:]
                await asyncio.sleep(0)
            pushed.set()

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(give(), *(take(own) for own in ("a", "b", "c", "d")))
        assert sorted(handed) == list(range(400))
        assert await bus.lanes.ids() == set()


def _random_block(rng: Random, number: int) -> BlockRef:
    priority = rng.randint(HIGHEST, LOWEST)
    return block(number, priority, rng.randint(1, 300), rng.choice(["", "", "a", "b", "c"]))


async def _one_step(bus: Bus, model: ModelLanes, rng: Random) -> None:
    """One random operation on both; the answers must be equal."""
    kind = rng.choices(["push", "pop", "remove", "clear"], [50, 40, 9, 1])[0]
    if kind == "push":
        refs = [_random_block(rng, rng.randrange(200)) for _ in range(rng.randint(1, 8))]
        assert await bus.lanes.push(refs) == model.push(refs)
    elif kind == "pop":
        order = rng.sample(DOWNWARD, rng.randint(1, 4))
        targets = rng.sample(["", "a", "b", "c"], rng.randint(1, 4))
        limit = rng.randint(1, 6)
        expected = model.pop(order, targets, limit)
        assert await bus.lanes.pop(order, targets, limit) == expected
    elif kind == "remove":
        doomed = [rng.randrange(200) for _ in range(rng.randint(1, 20))]
        assert await bus.lanes.remove(doomed) == model.remove(doomed)
    else:
        await bus.lanes.clear()
        model.clear()


class SignalsConformance:
    """Delivery to current listeners, at most once."""

    async def test_every_listener_hears_its_channels_in_order(self, bus: Bus) -> None:
        async with hearing(bus.signals, "a", "b") as both, hearing(bus.signals, "b") as one:
            for channel, payload in (("a", b"1"), ("c", b"2"), ("b", b"\x00\xff"), ("a", b"")):
                await bus.signals.publish(channel, payload)
            assert [await soon(both) for _ in range(3)] == [b"1", b"\x00\xff", b""]
            assert await soon(one) == b"\x00\xff"
            assert both.empty()
            assert one.empty()

    async def test_a_signal_without_listeners(self, bus: Bus) -> None:
        """A signal is not stored for later listeners."""
        await bus.signals.publish("a", b"lost")
        async with hearing(bus.signals, "a") as heard:
            await bus.signals.publish("a", b"heard")
            assert await soon(heard) == b"heard"

    async def test_a_listener_that_ends_disturbs_no_other(self, bus: Bus) -> None:
        async with hearing(bus.signals, "a") as stays:
            async with hearing(bus.signals, "a"):
                pass
            await bus.signals.publish("a", b"still here")
            assert await soon(stays) == b"still here"


class LogsConformance:
    """A bounded stream of lines."""

    async def test_lines_are_read_in_order_from_a_position(self, bus: Bus) -> None:
        lines = [{"n": str(n), "text": "two\nlines, ä"} for n in range(5)]
        await bus.logs.append("run-1", lines[:3])
        await bus.logs.append("run-2", [{"other": "stream"}, {}])
        await bus.logs.append("run-1", lines[3:])
        first = await bus.logs.read("run-1", limit=2)
        rest = await bus.logs.read("run-1", after=first[-1][0])
        assert [line for _, line in first + rest] == lines
        assert await bus.logs.read("run-1", after=rest[-1][0]) == []
        assert [line for _, line in await bus.logs.read("run-2")] == [{"other": "stream"}, {}]

    async def test_nothing_to_read_and_nothing_to_append(self, bus: Bus) -> None:
        await bus.logs.append("empty", [])
        assert await bus.logs.read("empty") == []
        await bus.logs.append("one", [{"a": "b"}])
        assert await bus.logs.read("one", limit=0) == []

    async def test_the_oldest_lines_go_first(self, bus: Bus) -> None:
        """A stream without readers stays bounded."""
        for start in range(0, 14_000, 1000):
            await bus.logs.append("long", [{"n": str(n)} for n in range(start, start + 1000)])
        kept = [int(line["n"]) for _, line in await bus.logs.read("long", limit=20_000)]
        assert 10_000 <= len(kept) <= 11_000
        assert kept == list(range(14_000 - len(kept), 14_000))

    @pytest.mark.parametrize("position", ["", "x", "1-2-3", "-1", "9" * 30, "1\n"])
    async def test_a_position_that_is_none(self, bus: Bus, position: str) -> None:
        """A position comes from a caller; an invalid one is an error of the caller."""
        with pytest.raises(InvalidInput):
            await bus.logs.read("run-1", after=position)


class BusConformance(LanesConformance, SignalsConformance, LogsConformance):
    """The whole contract."""

    async def test_it_answers_and_describes_itself(self, bus: Bus) -> None:
        await bus.ping()
        assert "://" in bus.describe()
        assert await bus.epoch() == await bus.epoch()

    async def test_a_turn_has_one_holder(self, bus: Bus) -> None:
        assert await bus.lead("dispatch", "center-1", 60)
        assert not await bus.lead("dispatch", "center-2", 60)
        assert await bus.lead("dispatch", "center-1", 60)
        assert await bus.lead("sweep", "center-2", 60)

    async def test_a_turn_ends_by_itself(self, bus: Bus) -> None:
        """A center that dies as the leader does not stay the leader."""
        assert await bus.lead("dispatch", "center-1", 60)
        assert await bus.lead("dispatch", "center-1", 0.02)
        await until(lambda: bus.lead("dispatch", "center-2", 60), seconds=PATIENCE, step=0.005)
        assert not await bus.lead("dispatch", "center-1", 60)
