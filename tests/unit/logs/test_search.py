"""A search finds what a naive look at every line finds: newest first, page by page, bounded."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.errors import InvalidInput
from skep.logs.center import search
from skep.logs.center.exporting import LogExporter, in_thread
from skep.logs.center.found_lines import key_of
from skep.logs.center.intake import IntakeRate, LogIntake
from skep.logs.center.merging import SETTLE, PieceMerger
from skep.logs.center.query import LogQuery, Matcher
from skep.logs.center.search import LogSearch, SearchBudget, SearchResult
from skep.logs.line_format import encode_entry, make_entry
from skep.model.logs import LogBatch, LogEntry, LogLine, LogSource, LogSourceKind
from skep.store.ports.logs import LogPieces
from skep.testing.clock import ManualClock
from skep.testing.doubles.log_pieces import SqliteLogPieces

NOW = 1_700_000_000.0
PLENTY = SearchBudget(2**60, 2**60, 1e9)
NOTHING = SearchBudget(0, 0, 0.0)


class Center:
    """Takes lines of several sources, and searches them."""

    def __init__(self, pieces: LogPieces) -> None:
        self.clock = ManualClock(NOW + 100_000)
        self.pieces = pieces
        self.intake = LogIntake(pieces, self.clock, IntakeRate(1e12, 1e12))
        self.merger = PieceMerger(pieces, self.clock)
        self.search = LogSearch(pieces, self.clock)
        self._next: dict[LogSource, int] = {}

    async def write(self, name: str, *entries: LogEntry, run: str = "r") -> None:
        source = LogSource(LogSourceKind.APP, name, run, f"agent-{name}")
        first = self._next.get(source, 0)
        self._next[source] = first + len(entries)
        lines = b"\n".join(map(encode_entry, entries))
        await self.intake.take(LogBatch(source, 1, first, lines))

    async def merge_all(self) -> None:
        self.clock.advance(SETTLE + 1)
        await self.merger.step()

    async def find(self, query: LogQuery, cursor: str = "", limit: int = 1000) -> SearchResult:
        return await self.search.search(query, cursor, limit, PLENTY)

    async def texts(self, query: LogQuery) -> list[str]:
        return [line.text for line in (await self.find(query)).lines]


@pytest.fixture
def center(log_pieces: LogPieces) -> Center:
    return Center(log_pieces)


def line(at: float, text: str, level: int = 20) -> LogEntry:
    return make_entry(NOW + at, level, text)


WORDS = st.sampled_from(["error", "Timeout", "蜂巢", "巢蜂", "a", "42", "x-1", "\n", "é", ""])
TEXTS = st.lists(WORDS, max_size=4).map(" ".join)
WRITES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.tuples(TEXTS, st.sampled_from([10, 20, 40])), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=8,
)
NEEDLES = st.sampled_from(["error", "TIMEOUT", "rro", "蜂巢", "蜂", "42", "4", "absent", "a 42"])
PATTERNS = [
    "^error$",
    "err.r|x-\\d",
    "蜂.",
    "(?i)timeout",
    "[^a]42",
    "\\Aerror",
    "a\\z",
    "^$",
    "x*",
]
QUERIES = st.builds(
    LogQuery,
    words=st.lists(NEEDLES, max_size=2).map(tuple),
    without=st.lists(NEEDLES, max_size=1).map(tuple),
    pattern=st.sampled_from(["", "", *PATTERNS]),
    level=st.sampled_from([0, 20, 30]),
    sources=st.sampled_from([(), ("a",), ("a", "b")]),
    since=st.sampled_from([None, NOW + 5]),
    until=st.sampled_from([None, NOW + 15]),
)


def naive(query: LogQuery) -> Callable[[LogLine], bool]:
    """The same, line by line, with Python's own patterns."""
    pattern = re.compile(query.pattern.replace("\\z", "\\Z"))

    def fits(line: LogLine) -> bool:
        text = line.text.replace("\n", "\r")
        return (
            all(word.lower() in text.lower() for word in query.words)
            and not any(word.lower() in text.lower() for word in query.without)
            and pattern.search(text) is not None
            and line.level >= query.level
            and (not query.sources or line.source in query.sources)
            and (query.since is None or line.time >= query.since)
            and (query.until is None or line.time <= query.until)
        )

    return fits


@settings(max_examples=100, deadline=None)
@given(WRITES, st.integers(1, 4), st.booleans(), st.booleans())
def test_all_lines_come_page_by_page(
    writes: list[tuple[str, list[tuple[str, int]]]], limit: int, merged: bool, bounded: bool
) -> None:
    asyncio.run(_compare(writes, LogQuery(), limit, merged, bounded))


@settings(max_examples=150, deadline=None)
@given(WRITES, QUERIES, st.integers(1, 4), st.booleans(), st.booleans())
def test_a_search_finds_what_a_naive_one_finds(
    writes: list[tuple[str, list[tuple[str, int]]]],
    query: LogQuery,
    limit: int,
    merged: bool,
    bounded: bool,
) -> None:
    asyncio.run(_compare(writes, query, limit, merged, bounded))


async def _compare(
    writes: list[tuple[str, list[tuple[str, int]]]],
    query: LogQuery,
    limit: int,
    merged: bool,
    bounded: bool,
) -> None:
    place = SqliteLogPieces(":memory:")
    center = Center(place)
    for number, (name, texts) in enumerate(writes):
        await center.write(name, *(line(3 * number + level, text, level) for text, level in texts))
        if merged and number == len(writes) // 2:
            await center.merge_all()
    everything = (await center.find(LogQuery(), limit=10_000)).lines
    assert len(everything) == sum(len(texts) for _, texts in writes)
    expected = sorted(filter(naive(query), everything), key=key_of, reverse=True)
    found: list[LogLine] = []
    cursor, budget = "", NOTHING if bounded else PLENTY
    while True:
        page = await center.search.search(query, cursor, limit, budget)
        assert len(page.lines) <= limit
        found += page.lines
        if not page.cursor:
            break
        assert page.cursor != cursor
        cursor = page.cursor
    assert found == expected
    place.close()


async def test_sources_are_mixed_by_time(center: Center) -> None:
    await center.write("a", line(1, "a1"), line(3, "a3"), line(5, "a5"))
    await center.write("b", line(2, "b2"), line(4, "b4"))
    assert await center.texts(LogQuery()) == ["a5", "b4", "a3", "b2", "a1"]


async def test_a_cursor_outlives_a_merge_and_new_lines(center: Center) -> None:
    for at in range(6):
        await center.write("ab"[at % 2], line(at, f"line {at}"))
    first = await center.find(LogQuery(), limit=2)
    await center.merge_all()
    await center.write("a", line(50, "new"))
    rest = await center.find(LogQuery(), first.cursor)
    texts = [one.text for one in [*first.lines, *rest.lines]]
    assert texts == [f"line {at}" for at in (5, 4, 3, 2, 1, 0)]


@pytest.mark.parametrize("cursor", ["x", "!!!", "AAAA", "\u00e9", "a" * 10_000])
async def test_a_cursor_that_is_none_is_refused(center: Center, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="is not a cursor"):
        await center.find(LogQuery(), cursor)


async def test_a_call_is_bounded_and_says_how_far_it_came(center: Center) -> None:
    for at in range(10):
        await center.write("a", line(at, f"line {at}"))
    found = await center.search.search(LogQuery(words=("line 3",)), "", 10, SearchBudget(20))
    assert (found.lines, found.read) == ([], 4)
    assert found.scanned_to == NOW + 5
    rest = await center.find(LogQuery(words=("line 3",)), found.cursor)
    assert [one.text for one in rest.lines] == ["line 3"]
    assert (rest.cursor, rest.scanned_to) == ("", None)


async def test_a_summary_saves_reading(center: Center) -> None:
    for name in "abcdef":
        await center.write(name, line(1, f"word {name * 5}"))
    await center.merge_all()
    found = await center.find(LogQuery(words=("CCCC",)))
    assert ([one.text for one in found.lines], found.pieces, found.read) == (["word ccccc"], 6, 1)


async def test_a_damaged_piece_is_counted_and_the_rest_is_found(
    center: Center, log_pieces: LogPieces
) -> None:
    await center.write("a", line(1, "one"))
    await center.write("b", line(2, "two"))
    assert isinstance(log_pieces, SqliteLogPieces)
    log_pieces._db.execute("update log_bodies set body = substr(body, 1, 20) where id = 1")
    await center.merge_all()
    found = await center.find(LogQuery())
    assert ([one.text for one in found.lines], found.damaged) == (["two"], 1)
    assert [one.text for one in (await center.search.follow(LogQuery(), 0)).lines] == ["two"]


async def test_fields_are_searched_too(center: Center) -> None:
    await center.write("a", make_entry(NOW, 20, "text", {"job": "quotes", "name": "蜂巢"}))
    assert await center.texts(LogQuery(words=("quotes", "蜂巢"))) == ["text"]
    assert await center.texts(LogQuery(pattern='"job":"quo')) == ["text"]


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?=x)", "x" * 1001, "\\1"])
async def test_a_pattern_that_is_not_valid_is_named(center: Center, pattern: str) -> None:
    with pytest.raises(InvalidInput, match="pattern"):
        await center.find(LogQuery(pattern=pattern))


async def test_words_are_bounded(center: Center) -> None:
    with pytest.raises(InvalidInput, match="1001 characters"):
        await center.find(LogQuery(words=("x" * 1001,)))
    with pytest.raises(InvalidInput, match="21 words"):
        await center.find(LogQuery(without=("x",) * 21))


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("[^a]42", [2]),
        (r"\s42", [2]),
        ("(?s)ab.42", []),
        ("^42$", [1]),
        (r"b\n42", []),
        (r"\A42\z", [1]),
        ("(?-m)^42$", [1]),
        ("", [0, 1, 2, 3]),
        ("$", [0, 1, 2, 3]),
    ],
)
def test_a_match_never_spans_lines(pattern: str, rows: list[int]) -> None:
    assert Matcher(LogQuery(pattern=pattern)).rows_in(b"ab\n42\nb 42\n") == rows


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)(.*)(.*)(.*)[^a]x", "(a?){50}a{50}"])
def test_a_pattern_made_to_hang_takes_linear_time(pattern: str) -> None:
    texts = b"\n".join([b"a" * 60_000 + b"!"] * 16)
    begun = time.process_time()
    Matcher(LogQuery(pattern=pattern)).rows_in(texts)
    assert time.process_time() - begun < 10.0


async def test_context_around_a_hit(center: Center) -> None:
    for at in range(20):
        await center.write("a", line(at, f"line {at}"))
        await center.write("b", line(at, "other"))
    (hit,) = (await center.find(LogQuery(words=("line 10",)))).lines
    source = LogSource(hit.kind, hit.source, hit.run, hit.agent)
    around = await center.search.context(source, hit.token, hit.offset, 2, 3)
    assert [one.text for one in around] == [f"line {at}" for at in range(8, 14)]
    await center.merge_all()
    assert await center.search.context(source, hit.token, hit.offset, 2, 3) == around


@pytest.mark.parametrize("arrivals", [1, 3, 256])
async def test_following_sees_each_line_once_whatever_is_merged(
    center: Center, monkeypatch: pytest.MonkeyPatch, arrivals: int
) -> None:
    monkeypatch.setattr(search, "_ARRIVALS", arrivals)
    position = await center.search.position()
    seen: list[str] = []
    for at in range(30):
        name = "abc"[at % 3]
        await center.write(name, line(at, f"{at}"))
        if at % 4 == 3:
            await center.merge_all()
        if at % 7 == 6:
            followed = await center.search.follow(LogQuery(sources=("a", "b")), position)
            position = followed.position
            seen += [one.text for one in followed.lines]
    while True:
        followed = await center.search.follow(LogQuery(sources=("a", "b")), position)
        seen += [one.text for one in followed.lines]
        position = followed.position
        if not followed.more:
            break
    assert sorted(seen, key=int) == [str(at) for at in range(30) if at % 3 != 2]


async def test_an_exporter_goes_on_where_it_stopped(center: Center, tmp_path: Path) -> None:
    written: list[str] = []

    class Kept:
        failed = 0

        def write(self, lines: Iterable[LogLine]) -> None:
            written.extend(one.text for one in lines)

    await center.write("a", line(0, "before"))
    for at in range(3):
        exporter = LogExporter(center.search, in_thread(Kept()), tmp_path / "position")
        await exporter.open()
        await center.write("a", line(at, f"{at}"))
        assert await exporter.step() == 1
        assert await exporter.step() == 0
        await center.merge_all()
    assert written == ["0", "1", "2"]


async def test_following_sees_lines_that_arrive_late(center: Center) -> None:
    await center.write("a", line(1000, "now"))
    position = await center.search.position()
    await center.write("b", line(0, "from an agent that was offline"))
    followed = await center.search.follow(LogQuery(), position)
    assert [one.text for one in followed.lines] == ["from an agent that was offline"]
    assert (await center.search.follow(LogQuery(), followed.position)).lines == []
