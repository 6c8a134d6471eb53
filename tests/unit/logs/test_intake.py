"""Each line is stored once, and a sender that misbehaves harms only itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.errors import Malformed, StaleToken, TooLarge
from skep.logs.agent.buffer import BufferBudget, LogBuffer
from skep.logs.agent.spool import Spool
from skep.logs.center.intake import BATCH_LIMIT, IntakeRate, IntakeResult, LogIntake
from skep.logs.center.merging import LINGER, SETTLE, PieceMerger
from skep.logs.center.query import LogQuery
from skep.logs.center.retention import LogBudget, LogRetention
from skep.logs.center.search import LogSearch, SearchBudget
from skep.logs.line_format import LINE_LIMIT, encode_entry
from skep.model.logs import LogBatch, LogEntry, LogLine, LogSource, LogSourceKind
from skep.store.ports.logs import LogPieces
from skep.testing.clock import ManualClock
from skep.testing.doubles.log_pieces import SqliteLogPieces

SOURCE = LogSource(LogSourceKind.AGENT, "home", "", "home")
NOW = 1_700_000_000.0
NO_LIMIT = IntakeRate(1e12, 1e12)


def batch(
    first: int, texts: Sequence[str], *, token: int = 1, of: LogSource = SOURCE, time: float = NOW
) -> LogBatch:
    lines = [encode_entry(LogEntry(time + at, 20, text)) for at, text in enumerate(texts)]
    return LogBatch(of, token, first, b"\n".join(lines))


def intake_of(pieces: LogPieces, clock: ManualClock | None = None) -> LogIntake:
    return LogIntake(pieces, clock or ManualClock(NOW + 1000), NO_LIMIT)


async def stored_lines(pieces: LogPieces, query: LogQuery | None = None) -> list[LogLine]:
    """Oldest first."""
    search = LogSearch(pieces, ManualClock())
    budget = SearchBudget(2**60, 2**60, 1e9)
    found = await search.search(query or LogQuery(), "", 10**6, budget)
    return found.lines[::-1]


async def texts_in(pieces: LogPieces) -> list[str]:
    return [line.text for line in await stored_lines(pieces)]


async def test_lines_are_stored_with_everything_that_is_known(log_pieces: LogPieces) -> None:
    source = LogSource(LogSourceKind.SPIDER, "quotes", "run-7", "home")
    entry = LogEntry(NOW, 40, "a\nb", {"page": 3})
    lines = encode_entry(entry)
    assert await intake_of(log_pieces).take(LogBatch(source, 5, 0, lines)) == IntakeResult(1, 1)
    assert await stored_lines(log_pieces) == [
        LogLine("spider", "quotes", "run-7", "home", 40, NOW, "a\nb", {"page": 3}, 5, 0)  # type: ignore[arg-type]  # as decoded
    ]


async def test_what_is_stored_already_is_skipped(log_pieces: LogPieces) -> None:
    intake = intake_of(log_pieces)
    await intake.take(batch(0, "abc"))
    assert await intake.take(batch(0, "abc")) == IntakeResult(3, 0, 3)
    assert await intake.take(batch(1, "bcde")) == IntakeResult(5, 2, 2)
    assert await texts_in(log_pieces) == list("abcde")
    assert (intake.figures.stored, intake.figures.duplicates) == (5, 5)


async def test_another_center_knows_what_the_first_has_stored(log_pieces: LogPieces) -> None:
    first, second = intake_of(log_pieces), intake_of(log_pieces)
    await first.take(batch(0, "ab"))
    await second.take(batch(0, "abc"))
    assert await first.take(batch(2, "cd")) == IntakeResult(4, 1, 1)  # it remembers 2, and is told
    assert await texts_in(log_pieces) == list("abcd")


async def test_the_same_batch_at_many_centers_at_once(log_pieces: LogPieces) -> None:
    centers = [intake_of(log_pieces) for _ in range(5)]
    taken = await asyncio.gather(*(center.take(batch(0, "abc")) for center in centers))
    assert sorted(one.stored for one in taken) == [0, 0, 0, 0, 3]
    assert await texts_in(log_pieces) == list("abc")


async def test_an_old_token_is_refused_and_counted(log_pieces: LogPieces) -> None:
    intake = intake_of(log_pieces)
    await intake.take(batch(0, "ab", token=2))
    with pytest.raises(StaleToken, match="token 1, but token 2"):
        await intake.take(batch(7, "xy", token=1))
    assert await intake.take(batch(0, "cd", token=3)) == IntakeResult(2, 2)
    assert intake.figures.stale == 2
    assert await texts_in(log_pieces) == list("abcd")


async def test_a_gap_becomes_a_line(log_pieces: LogPieces) -> None:
    intake = intake_of(log_pieces)
    await intake.take(batch(0, "a"))
    assert await intake.take(batch(1001, "b")) == IntakeResult(1002, 2, 0, 1000)
    lines = await stored_lines(log_pieces)
    assert [(line.offset, line.text) for line in lines] == [
        (0, "a"),
        (1000, "1,000 lines dropped"),
        (1001, "b"),
    ]
    assert lines[1].fields == {"dropped": 1000}
    assert await intake.take(batch(1001, "b")) == IntakeResult(1002, 0, 1)
    assert intake.figures.dropped == 1000


async def test_times_never_go_back_and_are_never_in_the_future(log_pieces: LogPieces) -> None:
    intake = intake_of(log_pieces, ManualClock(NOW + 5))
    await intake.take(batch(0, "ab", time=NOW))
    await intake.take(batch(2, "c", time=0.0))
    await intake.take(batch(3, "d", time=9e9))
    times = [line.time - NOW for line in await stored_lines(log_pieces)]
    assert times == [0.0, 1.0, 1.0, 5.0]


async def test_hostile_lines_are_repaired(log_pieces: LogPieces) -> None:
    intake = intake_of(log_pieces)
    texts = ["nul \0", "x" * 900_000, "password=hunter2 \x1b", "fine", "蜂\x9b"]
    await intake.take(batch(0, texts))
    found = await texts_in(log_pieces)
    assert found[0] == "nul \\x00"
    assert len(found[1]) <= LINE_LIMIT
    assert found[1].endswith(" bytes cut]")
    assert "hunter2" not in found[2]
    assert (found[3], found[4]) == ("fine", "蜂\\x9b")
    assert intake.figures.repaired == 4


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (b"x" * (BATCH_LIMIT + 1), TooLarge),
        (b'{"time":1,"level":1,"text":""}\n' * 70_000, TooLarge),
        (b'{"time":1,"level":1,"text":"\xff"}', Malformed),
        (b"not json", Malformed),
    ],
)
async def test_an_invalid_batch_is_refused_as_a_whole(
    log_pieces: LogPieces, lines: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await intake_of(log_pieces).take(LogBatch(SOURCE, 1, 0, lines))
    assert await stored_lines(log_pieces) == []


@pytest.mark.parametrize(
    ("source", "first"),
    [
        (SOURCE, -1),
        (SOURCE, 2**63 - 1),
        (LogSource(LogSourceKind.APP, "a\n"), 0),
        (LogSource(LogSourceKind.APP, "a", "\0"), 0),
        (LogSource(LogSourceKind.APP, "a", "", "\x9b"), 0),
    ],
)
async def test_a_source_or_an_offset_that_cannot_be_is_refused(
    log_pieces: LogPieces, source: LogSource, first: int
) -> None:
    with pytest.raises(Malformed):
        await intake_of(log_pieces).take(batch(first, "a", of=source))


async def test_times_and_levels_out_of_range_are_moved_into_it(log_pieces: LogPieces) -> None:
    lines = [
        encode_entry(LogEntry(time, level, "x"))
        for time, level in ((-1.7e308, -(2**63)), (1.7e308, 2**63 - 1))
    ]
    await intake_of(log_pieces).take(LogBatch(SOURCE, 1, 0, b"\n".join(lines)))
    found = await stored_lines(log_pieces)
    assert [(line.time, line.level) for line in found] == [(0.0, 0), (NOW + 1000, 50)]


async def test_an_empty_batch_changes_nothing(log_pieces: LogPieces) -> None:
    intake = intake_of(log_pieces)
    assert await intake.take(LogBatch(SOURCE, 1, 7, b"")) == IntakeResult(7)
    assert await intake.take(batch(7, "a")) == IntakeResult(8, 2, 0, 7)


async def test_an_agent_that_floods_waits_and_others_do_not(log_pieces: LogPieces) -> None:
    clock = ManualClock(NOW + 1000)
    intake = LogIntake(log_pieces, clock, IntakeRate(per_second=1000.0, burst=5000.0))
    flood = batch(0, ["x" * 4000])
    assert (await intake.take(flood)).stored == 1
    told = await intake.take(batch(1, ["x" * 4000]))
    assert (told.next, told.stored) == (1, 0)
    assert 3.0 < told.wait < 3.2
    other = LogSource(LogSourceKind.AGENT, "other", "", "other")
    assert (await intake.take(batch(0, ["y"], of=other))).stored == 1
    clock.advance(told.wait)
    assert (await intake.take(batch(1, ["x" * 4000]))).stored == 1
    assert intake.figures.delayed == {"home": 1}


async def test_a_flood_through_a_small_buffer_shows_what_was_dropped(
    log_pieces: LogPieces, tmp_path: Path
) -> None:
    buffer = LogBuffer(tmp_path, BufferBudget(each=64 * 1024, total=2**20))
    buffer.open()
    quiet = LogSource(LogSourceKind.APP, "quiet", "r", "home")
    buffer.append(quiet, 1, [LogEntry(NOW, 20, "quiet")])
    for number in range(100):
        entries = [LogEntry(NOW, 20, f"{number} {more} {'x' * 100}") for more in range(50)]
        buffer.append(SOURCE, 1, entries)
    intake = intake_of(log_pieces)
    while batches := list(buffer.batches(10_000)):
        for one in batches:
            buffer.acknowledge(one, (await intake.take(one)).next)
    lines = await stored_lines(log_pieces, LogQuery(sources=("home",)))
    assert lines[0].text == f"{buffer.dropped:,} lines dropped"
    assert intake.figures.dropped == buffer.dropped > 4000
    assert [line.offset for line in lines] == list(range(buffer.dropped - 1, 5000))
    assert len(await stored_lines(log_pieces, LogQuery(sources=("quiet",)))) == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_kills_on_both_sides_lose_nothing_and_repeat_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The agent is killed between any two steps, answers are lost, centers forget what they know:
    afterwards every line is stored once, in order."""
    asyncio.run(_random_walk(tmp_path_factory.mktemp("walk"), data))


async def _random_walk(folder: Path, data: st.DataObject) -> None:
    place = SqliteLogPieces(":memory:")
    intake, merger = intake_of(place), PieceMerger(place, ManualClock(NOW + 10 * SETTLE))
    spool, written = Spool(folder, SOURCE, 1, 2**20), 0
    spool.open()
    steps = st.sampled_from(["write", "send", "send, answer lost", "kill", "center", "merge"])
    for step in [*data.draw(st.lists(steps, max_size=25)), "drain"]:
        if step == "write":
            count = data.draw(st.integers(1, 5))
            texts = [f"line {written + more}" for more in range(count)]
            spool.append([encode_entry(LogEntry(NOW, 20, text)) for text in texts])
            written += count
        elif step == "kill":
            spool = Spool(folder, SOURCE, 1, 2**20)
            spool.open()
        elif step == "center":
            intake = intake_of(place)
        elif step == "merge":
            await merger.step()
        while step.startswith(("send", "drain")) and (sent := spool.batch(100)):
            taken = await intake.take(sent)
            if step != "send, answer lost":
                spool.acknowledge(taken.next)
            if step != "drain":
                break
    lines = await stored_lines(place)
    assert [(line.offset, line.text) for line in lines] == [
        (number, f"line {number}") for number in range(written)
    ]
    place.close()


CENTER = """
import asyncio, sys
from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.line_format import encode_entry
from skep.model.logs import LogBatch, LogEntry, LogSource, LogSourceKind
from skep.runtime.clock import SystemClock
from skep.testing.doubles.log_pieces import SqliteLogPieces

async def main():
    intake = LogIntake(SqliteLogPieces(sys.argv[1]), SystemClock(), IntakeRate(1e12, 1e12))
    source, first = LogSource(LogSourceKind.AGENT, "home", "", "home"), 0
    while True:
        lines = [encode_entry(LogEntry(0.0, 20, f"line {first + at}")) for at in range(10)]
        taken = await intake.take(LogBatch(source, 1, first, b"\\n".join(lines)))
        first = taken.next
        print(first, flush=True)

asyncio.run(main())
"""


def acknowledged_before_kill(path: Path) -> int:
    command = [sys.executable, "-c", CENTER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(20):
            told = int(process.stdout.readline())
        process.kill()
    return told


async def test_a_killed_center_has_every_line_that_it_acknowledged(tmp_path: Path) -> None:
    told = acknowledged_before_kill(tmp_path / "logs.db")
    place = SqliteLogPieces(str(tmp_path / "logs.db"))
    texts = await texts_in(place)
    assert len(texts) >= told
    assert texts == [f"line {number}" for number in range(len(texts))]
    assert (await intake_of(place).take(batch(told - 1, "x"))).stored == 0
    place.close()


async def test_merging_changes_nothing_that_is_read(log_pieces: LogPieces) -> None:
    clock = ManualClock(NOW + 1000)
    intake, merger = intake_of(log_pieces, clock), PieceMerger(log_pieces, clock)
    for number in range(40):
        await intake.take(batch(number * 2, ["a", "b"]))
    before = await stored_lines(log_pieces)
    assert await merger.step() == 40
    assert await merger.step() == 0
    assert await stored_lines(log_pieces) == before
    clock.advance(SETTLE + 1)
    assert await merger.step() > 0
    clock.advance(LINGER + 1)
    await merger.step()
    assert await stored_lines(log_pieces) == before
    (stored,) = await log_pieces.stored()
    assert stored.pieces == 1


async def test_two_centers_may_merge_at_once(log_pieces: LogPieces) -> None:
    clock = ManualClock(NOW + 1000)
    intake = intake_of(log_pieces, clock)
    for number in range(40):
        await intake.take(batch(number, ["a"]))
    clock.advance(SETTLE + 1)
    await asyncio.gather(*(PieceMerger(log_pieces, clock).step() for _ in range(4)))
    assert [line.offset for line in await stored_lines(log_pieces)] == list(range(40))


async def test_budgets_of_bytes_and_age(log_pieces: LogPieces) -> None:
    clock = ManualClock(NOW + 1000)
    intake = intake_of(log_pieces, clock)
    loud, quiet = (LogSource(LogSourceKind.AGENT, name, "", name) for name in ("loud", "quiet"))
    for number in range(20):
        await intake.take(batch(number, ["x"], of=loud, time=NOW + 10 * number))
    await intake.take(batch(0, ["old"], of=quiet))
    total = {one.agent: one.bytes for one in await log_pieces.stored()}
    budget = LogBudget(bytes=10**9, agent_bytes=total["loud"] // 2, age=1e6)
    freed = await LogRetention(log_pieces, clock, budget).step()
    assert total["loud"] // 2 <= freed < total["loud"]
    lines = await stored_lines(log_pieces)
    assert {line.source for line in lines} == {"loud", "quiet"}
    assert max(line.offset for line in lines) == 19
    assert await LogRetention(log_pieces, clock, budget).step() == 0
    old = LogBudget(bytes=10**9, agent_bytes=10**9, age=995.0)
    await LogRetention(log_pieces, clock, old).step()
    assert {line.source for line in await stored_lines(log_pieces)} == {"loud"}
    await LogRetention(log_pieces, clock, LogBudget(bytes=0, agent_bytes=10**9)).step()
    assert await stored_lines(log_pieces) == []
