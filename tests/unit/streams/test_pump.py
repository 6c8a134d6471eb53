"""The pump: nothing lost, nothing out of order, nothing past a record that is not buried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import ConfigurationError, Unavailable
from skep.streams.ports import Record, Refused
from skep.streams.position import PositionFile
from skep.streams.sink_writer import SinkWriter
from skep.testing.clock import ManualClock


class ScriptedSink:
    """Keeps what it is told, refuses and fails as it is told."""

    def __init__(
        self,
        refuse: AbstractSet[int] = frozenset(),
        poison: AbstractSet[int] = frozenset(),
        start: int = 0,
    ) -> None:
        self.refuse, self.poison, self.start = refuse, poison, start
        self.away = 0
        self.kept: list[int] = []
        self.events: list[tuple[str, int]] = []
        self.calls = 0
        self.closed = False

    async def open(self) -> int:
        self._maybe_away()
        return self.start

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        self.calls += 1
        self._maybe_away()
        positions = [record.position for record in records]
        if self.poison & set(positions):
            raise RuntimeError("something is wrong with one of them")
        refused = [Refused(position, "no") for position in positions if position in self.refuse]
        if not refused:
            self.kept += positions
            self.events += [("kept", position) for position in positions]
        return refused

    async def close(self) -> None:
        self.closed = True

    def describe(self) -> str:
        return "scripted"

    def _maybe_away(self) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("away")


class Source:
    def __init__(self, count: int) -> None:
        self.count = count

    async def read(self, after: int, limit: int) -> list[Record]:
        return [Record(n, {"n": n}) for n in range(after + 1, min(self.count, after + limit) + 1)]


def make_pump(
    sink: ScriptedSink, source: Source, clock: ManualClock, **options: Any
) -> tuple[SinkWriter, list[int]]:
    buried: list[int] = []

    async def bury(refused: Refused) -> None:
        assert refused.reason
        buried.append(refused.position)
        sink.events.append(("dead", refused.position))

    pump = SinkWriter(sink, source.read, clock, Random(1), dead=bury, **options)
    return pump, buried


async def test_everything_is_told_in_order(clock: ManualClock) -> None:
    sink = ScriptedSink()
    pump, _ = make_pump(sink, Source(1234), clock, batch=100)
    assert await pump.run_until(lambda: True)
    assert sink.kept == list(range(1, 1235))
    assert sink.calls == 13
    assert (pump.counts.written, pump.position) == (1234, 1234)


async def test_it_goes_on_after_the_position_of_the_sink(clock: ManualClock) -> None:
    sink = ScriptedSink(start=7)
    pump, _ = make_pump(sink, Source(10), clock)
    await pump.run_until(lambda: True)
    assert sink.kept == [8, 9, 10]


async def test_refused_records_are_buried_before_the_rest_is_stored(clock: ManualClock) -> None:
    sink = ScriptedSink(refuse={3, 10})
    pump, buried = make_pump(sink, Source(10), clock, batch=5)
    await pump.run_until(lambda: True)
    assert sink.kept == [1, 2, 4, 5, 6, 7, 8, 9]
    assert buried == [3, 10]
    assert sink.events.index(("dead", 3)) < sink.events.index(("kept", 4))
    assert (pump.counts.written, pump.counts.dead, pump.position) == (8, 2, 10)


async def test_a_bad_record_is_found_by_halving(clock: ManualClock) -> None:
    sink = ScriptedSink(poison={77})
    pump, buried = make_pump(sink, Source(500), clock)
    await pump.run_until(lambda: True)
    assert buried == [77]
    assert sink.kept == [n for n in range(1, 501) if n != 77]
    assert sink.calls < 25


@given(
    poison=st.sets(st.integers(1, 60)),
    refuse=st.sets(st.integers(1, 60)),
    batch=st.integers(1, 70),
)
def test_every_record_is_kept_or_buried_and_kept_in_order(
    poison: set[int], refuse: set[int], batch: int
) -> None:
    sink = ScriptedSink(refuse=refuse, poison=poison)

    async def run() -> list[int]:
        pump, buried = make_pump(sink, Source(60), ManualClock(), batch=batch)
        assert await pump.run_until(lambda: True)
        assert pump.counts.written + pump.counts.dead == 60
        return buried

    buried = asyncio.run(run())
    assert sorted(buried) == sorted(poison | refuse)
    assert sink.kept == [n for n in range(1, 61) if n not in poison | refuse]


async def test_a_sink_that_is_away_is_retried_with_longer_waits(
    clock: ManualClock,
) -> None:
    sink = ScriptedSink()
    sink.away = 40
    pump, buried = make_pump(sink, Source(3), clock)
    running = asyncio.create_task(pump.run_until(lambda: True))
    await clock.pass_time(5)
    assert 4 <= pump.counts.retries <= 10
    await clock.pass_time(3600)
    assert await running
    assert pump.counts.retries == 40
    assert (sink.kept, buried) == ([1, 2, 3], [])


async def test_stopping_ends_a_wait_at_once(clock: ManualClock) -> None:
    sink = ScriptedSink()
    sink.away = 10**9
    pump, _ = make_pump(sink, Source(3), clock)
    running = asyncio.create_task(pump.run_until(lambda: True))
    await clock.pass_time(1)
    pump.stop()
    assert not await asyncio.wait_for(running, 5)
    assert sink.kept == []


async def test_it_waits_for_more_until_it_is_done(clock: ManualClock) -> None:
    sink, source, done = ScriptedSink(), Source(2), asyncio.Event()
    pump, _ = make_pump(sink, source, clock, idle=1.0)
    running = asyncio.create_task(pump.run_until(done.is_set))
    await clock.pass_time(3)
    source.count = 4
    pump.wake()
    await clock.pass_time(0)
    assert sink.kept == [1, 2, 3, 4]
    source.count = 5
    done.set()
    await clock.pass_time(1)
    assert await running
    assert sink.kept == [1, 2, 3, 4, 5]
    await pump.close()
    assert sink.closed


async def test_the_position_is_remembered_for_a_sink_that_cannot(
    clock: ManualClock, tmp_path: Path
) -> None:
    memory = tmp_path / "position"
    for count in (5, 9):
        sink = ScriptedSink()
        pump, _ = make_pump(sink, Source(count), clock, memory=PositionFile(memory), batch=2)
        await pump.run_until(lambda: True)
        assert json.loads(memory.read_text()) == {"position": count}
    assert sink.kept == [6, 7, 8, 9]


async def test_a_memory_that_is_not_ours_is_not_overwritten(
    clock: ManualClock, tmp_path: Path
) -> None:
    memory = tmp_path / "notes.txt"
    memory.write_text("milk, bread")
    pump, _ = make_pump(ScriptedSink(), Source(1), clock, memory=PositionFile(memory))
    with pytest.raises(ConfigurationError, match="not a position"):
        await pump.run_until(lambda: True)
    assert memory.read_text() == "milk, bread"


async def test_a_place_that_is_wrong_ends_the_pump_and_buries_nothing(clock: ManualClock) -> None:
    class Wrong(ScriptedSink):
        async def write(self, records: Sequence[Record]) -> list[Refused]:
            raise ConfigurationError(f"no table for {len(records)} records")

    pump, buried = make_pump(Wrong(), Source(5), clock)
    with pytest.raises(ConfigurationError):
        await pump.run_until(lambda: True)
    assert (buried, pump.position) == ([], 0)


async def test_a_source_that_goes_back_is_not_believed(clock: ManualClock) -> None:
    class Confused(Source):
        async def read(self, after: int, limit: int) -> list[Record]:
            return list(reversed(await super().read(after, limit)))

    sink = ScriptedSink()
    pump, _ = make_pump(sink, Confused(2), clock)
    with pytest.raises(ValueError, match="position 1 after 2"):
        await pump.run_until(lambda: True)
    assert sink.kept == []


async def test_a_dead_letter_that_cannot_be_kept_yet_is_tried_again(clock: ManualClock) -> None:
    tries = 0

    async def bury(_refused: Refused) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unavailable("the store is away")

    sink = ScriptedSink(refuse={1})
    pump = SinkWriter(sink, Source(2).read, clock, Random(1), dead=bury)
    running = asyncio.create_task(pump.run_until(lambda: True))
    await clock.pass_time(10)
    assert await running
    assert (tries, sink.kept) == (3, [2])


async def test_a_sink_that_stays_away_is_one_line_a_minute(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """U10: one line at once, then one a minute with the number of tries, one when it is back."""
    sink = ScriptedSink()
    sink.away = 10**6
    pump, _ = make_pump(sink, Source(3), clock)
    running = asyncio.create_task(pump.run_until(lambda: True))
    await clock.pass_time(10.0)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["retrying until it answers: away"]
    await clock.pass_time(300.0)
    assert 4 <= len(caplog.records) <= 6
    assert "failed tries since the last line" in caplog.records[-1].getMessage()
    sink.away = 0
    await clock.pass_time(60.0)
    assert await running
    assert caplog.records[-1].getMessage() == "sink scripted answers again"


async def test_a_pump_with_a_number_of_tries_ends(clock: ManualClock) -> None:
    """E4: a delivery lets go of a sink that is away, and buries nothing."""
    sink = ScriptedSink()
    sink.away = 10**6
    pump, buried = make_pump(sink, Source(3), clock, tries=3)
    running = asyncio.create_task(pump.run_until(lambda: True))
    await clock.pass_time(10.0)
    with pytest.raises(Unavailable, match="away"):
        await running
    assert (buried, pump.counts.retries) == ([], 3)
