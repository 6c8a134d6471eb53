"""The output of a process, from its file into the store: each line once, whatever ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skep.errors import StoreDown
from skep.logs.center import file_feed
from skep.logs.center.file_feed import PIECE, FileFeed, split_lines
from skep.logs.center.file_feeds import FileFeeds
from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.center.query import LogQuery
from skep.logs.center.search import LogSearch, SearchBudget
from skep.model.logs import LogLine, LogSource, LogSourceKind
from skep.runtime.clock import SystemClock
from skep.store.ports.logs import LogPieces
from skep.testing.doubles.log_pieces import SwitchedLogPieces

SOURCE = LogSource(LogSourceKind.SPIDER, "quotes", "quotes-1")
CLOCK = SystemClock()


async def stored(pieces: LogPieces) -> list[LogLine]:
    found = await LogSearch(pieces, CLOCK).search(LogQuery(), "", 10_000, SearchBudget())
    return found.lines[::-1]


async def texts(pieces: LogPieces) -> list[str]:
    return [line.text for line in await stored(pieces)]


@pytest.fixture
def intake(log_pieces: LogPieces) -> LogIntake:
    return LogIntake(log_pieces, CLOCK, IntakeRate())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotes-1.log"


def feed_of(path: Path, intake: LogIntake, center: str = "one") -> FileFeed:
    return FileFeed(path, center, intake, CLOCK)


def write(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def memory_of(path: Path) -> Path:
    return path.with_suffix(file_feed.POSITION_SUFFIX)


def size_of(path: Path) -> int:
    return path.stat().st_size


async def begun(path: Path, intake: LogIntake, token: int = 1) -> FileFeed:
    feed = feed_of(path, intake)
    await feed.open(SOURCE, token)
    return feed


async def all_of(feed: FileFeed) -> None:
    while await feed.step():
        pass


async def test_whole_lines_are_stored_and_the_rest_waits_for_its_end(
    path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    """R4: the log of a spider is searchable while it runs."""
    feed = await begun(path, intake)
    write(path, "a\nb\n\nhal")
    await all_of(feed)
    assert await texts(log_pieces) == ["a", "b"]
    write(path, "f\nlast")
    await all_of(feed)
    assert await texts(log_pieces) == ["a", "b", "half"]
    assert await feed.finish()
    assert await texts(log_pieces) == ["a", "b", "half", "last"]


async def test_json_lines_keep_their_level_time_and_fields(
    path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    feed = await begun(path, intake)
    line = {"at": "2020-11-18T12:00:00+00:00", "level": "error", "message": "no", "logger": "x"}
    write(path, json.dumps(line) + '\n{"at": 1}\n')
    await all_of(feed)
    first, second = await stored(log_pieces)
    assert (first.text, first.level, first.time) == ("no", 40, 1605700800.0)
    assert first.fields == {"logger": "x"}
    assert (second.text, second.level) == ('{"at": 1}', 20)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"nul \0 here\n", ["nul \\x00 here"]),
        (b"broken \xff\xfe\n", ["broken \\xff\\xfe"]),
        (b"login with password=hunter2\n", ["login with password=***"]),
    ],
)
async def test_hostile_output(
    output: bytes, expected: list[str], path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    """R4: what is stored is printable and masked."""
    feed = await begun(path, intake)
    write(path, output)
    await all_of(feed)
    assert await texts(log_pieces) == expected


async def test_a_line_of_ten_megabytes_is_cut_and_says_so(
    path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    feed = await begun(path, intake)
    write(path, b"x" * 10_000_000 + b"\nafter\n")
    await all_of(feed)
    *parts, after = await texts(log_pieces)
    assert after == "after"
    assert len(parts) == -(-10_000_000 // PIECE)
    assert all("bytes cut]" in part for part in parts[:-1])


async def test_a_killed_center_sends_again_and_nothing_is_stored_twice(
    path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    """R4, kill -9 between the store and the note of it: the old note is what is left."""
    feed = await begun(path, intake)
    write(path, "a\nb\n")
    memory = path.with_suffix(file_feed.POSITION_SUFFIX)
    note = memory.read_bytes()
    await all_of(feed)
    memory.write_bytes(note)
    write(path, "c\n")
    again = await begun(path, intake)  # the same lease: the center came back in time
    write(path, "d\n")
    await all_of(again)
    assert await texts(log_pieces) == ["a", "b", "c", "d"]


async def test_what_was_left_is_stored_under_its_old_token(
    path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    """R4: the same center takes the run again, under a new lease."""
    await begun(path, intake, token=1)
    write(path, "old\n")
    feed = await begun(path, intake, token=2)
    write(path, "new\n")
    await all_of(feed)
    lines = await stored(log_pieces)
    assert [(line.text, line.token, line.offset) for line in lines] == [
        ("old", 1, 0),
        ("new", 2, 0),
    ]


async def test_a_feed_that_was_fenced_off_names_its_center_and_loses_nothing(
    tmp_path: Path, intake: LogIntake, log_pieces: LogPieces
) -> None:
    """R4: another center takes the run over; the first one has lines that it did not send."""
    first, second = feed_of(tmp_path / "1.log", intake), feed_of(tmp_path / "2.log", intake, "two")
    await first.open(SOURCE, 1)
    write(tmp_path / "1.log", "a\n")
    await all_of(first)
    write(tmp_path / "1.log", "b\nc\n")
    await second.open(SOURCE, 2)
    write(tmp_path / "2.log", "d\n")
    await all_of(second)
    await all_of(first)
    assert await first.finish()
    lines = await stored(log_pieces)
    found = sorted((line.source, line.text, line.offset) for line in lines)
    assert found == [
        ("quotes", "a", 0),
        ("quotes", "d", 0),
        ("quotes on one", "b", 0),
        ("quotes on one", "c", 1),
    ]
    assert {line.run for line in lines} == {"quotes-1"}


async def test_a_store_that_is_away_costs_no_line(path: Path, tmp_path: Path) -> None:
    """R4: the file keeps what the store does not take, also after the end of the process."""
    away = SwitchedLogPieces(str(tmp_path / "pieces.db"))
    intake = LogIntake(away, CLOCK, IntakeRate())
    feeds = FileFeeds(tmp_path, "one", intake, CLOCK)
    async with feeds.storing(path, SOURCE, 1):
        away.away = True
        write(path, "a\nb\n")
    assert await texts(away) == []
    with pytest.raises(StoreDown):
        await feeds.step()
    away.away = False
    await feeds.step()
    await feeds.step()
    assert await texts(away) == ["a", "b"]
    assert not memory_of(path).exists()
    away.close()


async def test_a_large_file_is_emptied_once_it_is_stored(
    path: Path, intake: LogIntake, log_pieces: LogPieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_feed, "LIMIT", 100)
    feed = await begun(path, intake)
    write(path, "x" * 60 + "\n" + "y" * 60 + "\n")
    await all_of(feed)
    assert size_of(path) == 0
    write(path, "z\n")
    await all_of(feed)
    assert await texts(log_pieces) == ["x" * 60, "y" * 60, "z"]


async def test_a_flood_that_is_not_stored_in_time_is_dropped_and_named(
    path: Path, log_pieces: LogPieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_feed, "HARD_LIMIT", 1000)
    monkeypatch.setattr(file_feed, "LIMIT", 100)
    intake = LogIntake(log_pieces, CLOCK, IntakeRate(per_second=1.0, burst=120.0))
    feed = await begun(path, intake)
    write(path, "x" * 60 + "\n")
    await all_of(feed)
    write(path, "y" * 2000 + "\n")
    await all_of(feed)
    assert size_of(path) == 0
    write(path, "z\n")
    feed._intake = LogIntake(log_pieces, CLOCK, IntakeRate())  # it has waited long enough
    await all_of(feed)
    found = await texts(log_pieces)
    assert found[1:] == [
        "2,001 bytes of output dropped: they came faster than they were stored",
        "z",
    ]


def test_lines_are_split_at_their_ends() -> None:
    assert split_lines(b"a\nb", last=False) == ([b"a"], 2)
    assert split_lines(b"a\nb", last=True) == ([b"a", b"b"], 3)
    assert split_lines(b"", last=True) == ([], 0)
    assert split_lines(b"a\n", last=True) == ([b"a"], 2)
    assert split_lines(b"x" * PIECE, last=False) == ([b"x" * PIECE], PIECE)
