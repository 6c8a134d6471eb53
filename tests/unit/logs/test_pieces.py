"""Bodies, summaries and merged pieces: what goes in comes out, and no summary denies wrongly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from skep.errors import StoreDamaged
from skep.logs.center.intake import forward_times, new_piece
from skep.logs.center.merging import FAN_IN, FINAL, merged_piece, planned
from skep.logs.center.piece_body import entry_of, read_table, read_texts, row_of
from skep.logs.center.query import LogQuery, Matcher
from skep.logs.center.summary import hashes_of, make_summary, may_contain
from skep.logs.line_format import make_entry, printable
from skep.model.logs import LogEntry, LogSource, LogSourceKind
from skep.store.ports.logs import MergeRule, NewPiece, PieceFacts

SOURCE = LogSource(LogSourceKind.SPIDER, "quotes", "run-1")
FIELDS = st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | st.text(max_size=5), max_size=2)
ENTRIES = st.lists(
    st.builds(
        make_entry, st.floats(0, 2e9), st.sampled_from([10, 20, 40]), st.text(max_size=20), FIELDS
    ),
    min_size=1,
    max_size=20,
)
RULE = MergeRule(FINAL, FAN_IN, 1000, 50.0)


def stored(entries: list[LogEntry], first: int = 0, number: int = 1) -> tuple[PieceFacts, NewPiece]:
    times = forward_times(entries, 0.0, 3e9)
    piece = new_piece(SOURCE, 1, first + len(entries), entries, times)
    return facts_of(piece, number), piece


def facts_of(piece: NewPiece, number: int, at: float = 100.0) -> PieceFacts:
    values = {name: getattr(piece, name) for name in piece.__struct_fields__}
    del values["next"], values["body"]
    stored_bytes = len(piece.body)
    return PieceFacts(
        id=number, at=at, first_arrived=number, last_arrived=number, stored=stored_bytes, **values
    )


def lines_of(piece: NewPiece) -> list[tuple[int, str, int, object]]:
    table, rows = read_table(piece.body), read_texts(piece.body).split(b"\n")
    entries = [entry_of(row, 0.0, 0) for row in rows]
    return [
        (offset, entry.text, level, entry.fields)
        for offset, entry, level in zip(table.offsets(), entries, table.levels, strict=True)
    ]


@given(ENTRIES, st.integers(0, 10))
def test_a_piece_gives_back_its_lines(entries: list[LogEntry], first: int) -> None:
    facts, piece = stored(entries, first)
    assert lines_of(piece) == [
        (number, entry.text, entry.level, entry.fields)
        for number, entry in enumerate(entries, first)
    ]
    times = read_table(piece.body).times()
    assert (times[0], times[-1]) == (facts.earliest, facts.latest)
    assert times == sorted(times)


@given(st.lists(ENTRIES, min_size=1, max_size=5))
def test_a_merged_piece_has_the_lines_of_its_parts(groups: list[list[LogEntry]]) -> None:
    parts, first, bodies, expected = [], 0, {}, []
    for number, entries in enumerate(groups, 1):
        facts, piece = stored(entries, first, number)
        first += len(entries) + 1  # a gap between any two
        parts.append(facts)
        bodies[number] = piece.body
        expected += lines_of(piece)
    whole = merged_piece(parts, bodies, FINAL)
    assert lines_of(whole) == expected
    table = read_table(whole.body)
    assert [count for _, count in table.arrivals] == [len(entries) for entries in groups]
    assert table.times() == [time for part in parts for time in read_table(bodies[part.id]).times()]
    assert whole.summary


@pytest.mark.parametrize("damage", [b"", b"SKL1", b"XXXX" + bytes(20)])
def test_a_damaged_body_is_named(damage: bytes) -> None:
    with pytest.raises(StoreDamaged):
        read_table(damage)
    with pytest.raises(StoreDamaged):
        read_texts(damage)


@given(st.lists(st.text(max_size=30), min_size=1), st.data())
def test_a_summary_never_denies_a_part_of_a_text(texts: list[str], data: st.DataObject) -> None:
    safe = [printable(text) for text in texts]
    row = data.draw(st.sampled_from(safe))
    start = data.draw(st.integers(0, len(row)))
    end = data.draw(st.integers(start, len(row)))
    rows = b"\n".join(row_of(LogEntry(0.0, 0, text)).encode() for text in safe)
    summary = make_summary(rows)
    assert may_contain(summary, hashes_of(row[start:end].encode()))
    assert Matcher(LogQuery(words=(row[start:end].swapcase(),))).may_be_in(summary) or not (
        row[start:end].isascii()
    )


def test_a_summary_denies_what_is_not_there() -> None:
    summary = make_summary("GET /page of host example, 解析 标题 价格".encode())
    assert not may_contain(summary, hashes_of(b"zugzwang"))
    assert may_contain(summary, hashes_of("标题".encode()))
    assert not may_contain(summary, hashes_of("题标".encode()))  # both characters, another order
    assert not may_contain(summary, hashes_of("蜂".encode()))
    assert may_contain(b"", hashes_of(b"zugzwang"))


def sized(number: int, size: int, tier: int = 0, at: float = 100.0) -> PieceFacts:
    _, piece = stored([LogEntry(0.0, 0, "x" * size)], number, number + 1)
    return replace(facts_of(piece, number + 1, at), tier=tier)


def test_full_pieces_are_planned_first_and_the_rest_waits() -> None:
    group = [sized(number, 400) for number in range(7)]
    plan = [([part.id for part in parts], tier) for parts, tier in planned(group, RULE)]
    assert plan == [([1, 2, 3], FINAL), ([4, 5, 6], FINAL)]


def test_many_small_ones_become_one_of_the_next_tier() -> None:
    group = [sized(0, 9, tier=1), *(sized(number, 9) for number in range(1, 1 + FAN_IN))]
    ((parts, tier),) = planned(group, RULE)
    assert ([part.id for part in parts], tier) == ([*range(2, 2 + FAN_IN)], 1)
    assert list(planned(group[:-1], RULE)) == []


def test_many_that_are_large_together_become_final_at_once() -> None:
    ((parts, tier),) = planned([sized(number, 20) for number in range(FAN_IN)], RULE)
    assert (len(parts), tier) == (FAN_IN, FINAL)


def test_old_ones_become_final_whatever_their_size() -> None:
    group = [sized(0, 9, tier=2, at=10.0), sized(1, 9)]
    ((parts, tier),) = planned(group, RULE)
    assert (len(parts), tier) == (2, FINAL)
