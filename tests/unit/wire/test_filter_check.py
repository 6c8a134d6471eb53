"""Filters checked against the fields of a resource: typed values, and errors that help."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from skep.errors import InvalidFilter, InvalidInput
from skep.model.filter.checked import (
    Between,
    CheckedFilter,
    CheckedTerm,
    Condition,
    LabelIs,
    Match,
    Pattern,
)
from skep.model.filter.fields import FieldTable
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import AGENTS, REQUESTS, RUNS, TABLES
from skep.wire.problem import PROBLEM, error_from, problem_of

NOON = datetime(2026, 11, 18, 12, 0, tzinfo=UTC).timestamp()
DAY = 86_400.0
MIDNIGHT = NOON - DAY / 2


def conditions(text: str, table: FieldTable = REQUESTS) -> tuple[Condition, ...]:
    """Of a filter with one term."""
    (term,) = read_filter(text, table, NOON).terms
    return term.conditions


def test_a_checked_filter_has_typed_values() -> None:
    found = read_filter(
        'state:failed job:q* since:2h duration:>30s "Free" -label:eu', REQUESTS, NOON
    )
    assert found == CheckedFilter(
        "requests",
        (
            CheckedTerm(("state",), (Pattern(Match.WHOLE, "dead"),)),
            CheckedTerm(("job",), (Pattern(Match.STARTS, "q"),)),
            CheckedTerm(("created",), (Between(low=NOON - 7200),)),
            CheckedTerm(("duration",), (Between(low=30.0, above_low=True),)),
            CheckedTerm(("uri", "detail"), (Pattern(Match.CONTAINS, "free", fold=True),)),
            CheckedTerm(("label",), (LabelIs("eu"),), negated=True),
        ),
        NOON,
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("state:OPEN", ["waiting", "queued", "leased", "delayed"]),
        ("state:dead,failed", ["dead"]),
        ("state:ended", ["done", "dead", "cancelled", "expired"]),
        ("error:timeout,Network", ["timeout", "network"]),
    ],
)
def test_words(text: str, wanted: list[str]) -> None:
    assert conditions(text) == tuple(Pattern(Match.WHOLE, word) for word in wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("job:Quotes", Pattern(Match.WHOLE, "Quotes")),
        ("job:*", Pattern(Match.ANY)),
        ("host:*.Example.COM", Pattern(Match.ENDS, ".example.com")),
        ("uri:Abc", Pattern(Match.CONTAINS, "abc", fold=True)),
        ("url:HTTPS://*", Pattern(Match.STARTS, "https://", fold=True)),
        ("uri:ÄB", Pattern(Match.CONTAINS, "Äb", fold=True)),
        ("group:0a1b@h", Pattern(Match.WHOLE, "000000000a1b@h")),
        ("fingerprint:a", Pattern(Match.STARTS, "00000000000a@")),
        ("label:team=a", LabelIs("team", Pattern(Match.WHOLE, "a"))),
        ("label:team=a*", LabelIs("team", Pattern(Match.STARTS, "a"))),
        ("label:team=*", LabelIs("team")),
        ("label:*", LabelIs()),
    ],
)
def test_texts(text: str, wanted: Condition) -> None:
    assert conditions(text) == (wanted,)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("failures:3", Between(3, 3)),
        ("failures:2..5", Between(2, 5)),
        ("failures:>=2", Between(low=2)),
        ("failures:..5", Between(high=5)),
        ("failures:*", Between()),
        ("priority:-1", Between(-1, -1)),
        ("duration:1h30m", Between(5400.0, 5400.0)),
        ("duration:<500ms", Between(high=0.5, below_high=True)),
        ("duration:90", Between(90.0, 90.0)),
        ("duration:15min", Between(900.0, 900.0)),
        ("duration:15m", Between(900.0, 900.0)),
        ("size:>1MB", Between(low=1_000_000, above_low=True)),
        ("size:<=1.5KiB", Between(high=1536)),
        ("status:400..499", Between(400, 499)),
    ],
)
def test_numbers(text: str, wanted: Between) -> None:
    assert conditions(text) == (wanted,)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("since:2h", Between(low=NOON - 7200)),
        ("since:1d12h", Between(low=NOON - 1.5 * DAY)),
        ("since:2026-11-18", Between(low=MIDNIGHT)),
        ("until:2026-11-18", Between(high=MIDNIGHT, below_high=True)),
        ("since:2026-11-18T12:00:00+01:00", Between(low=NOON - 3600)),
        ("since:today", Between(low=MIDNIGHT)),
        ("until:now", Between(high=NOON, below_high=True)),
        ("since:1700000000", Between(low=1_700_000_000.0)),
        ("created:2026-11-18", Between(MIDNIGHT, MIDNIGHT + DAY, below_high=True)),
        ("created:yesterday", Between(MIDNIGHT - DAY, MIDNIGHT, below_high=True)),
        ("created:2026-11-18T12:00", Between(NOON, NOON + 60, below_high=True)),
        ("created:2026-11-18T12:00:00Z", Between(NOON, NOON + 1, below_high=True)),
        ("created:>2026-11-18", Between(low=MIDNIGHT + DAY)),
        ("created:>2h", Between(low=NOON - 7200, above_low=True)),
        ("created:<=2026-11-18", Between(high=MIDNIGHT + DAY, below_high=True)),
        ("created:<2026-11-18", Between(high=MIDNIGHT, below_high=True)),
        ("created:2h..1h", Between(NOON - 7200, NOON - 3600)),
        (
            "created:2026-11-17..2026-11-18",
            Between(MIDNIGHT - DAY, MIDNIGHT + DAY, below_high=True),
        ),
    ],
)
def test_times(text: str, wanted: Between) -> None:
    """A date is a whole day; what has no zone is UTC."""
    assert conditions(text) == (wanted,)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("stat:dead", 1, "'stat' is not a field of requests; use `state`, `status`, "),
        ("a -sate:dead", 4, "'sate' is not a field of requests; use `state`, "),
        ("http://x", 1, "'http' is not a field of requests"),
        ("state:ded", 7, "'ded' is not a value of `state`; use `dead`, "),
        ("state:dead,done,runing", 17, "'runing' is not a value of `state`"),
        ("state:d*", 7, "`a*` is not an operator of the field `state`; use `a`"),
        ("job:>5", 5, "`>a` is not an operator of the field `job`; use `a`, `a*`"),
        ("a..b", 1, "`a..b` is not an operator of free text; use `a`, `a*`, "),
        ("since:>2h", 7, "`>a` is not an operator of the field `since`"),
        ("failures:x", 10, "'x' is not a whole number"),
        ("failures:99999999999999999999", 10, "at most 19 digits"),
        ("failures:9223372036854775808", 10, "at most 19 digits"),
        ("failures:5..2", 10, "'5..2' is empty; write the smaller bound first"),
        ("duration:>30x", 10, "'30x' is not a duration; write 500ms"),
        ("size:>1XB", 6, "'1XB' is not a size; write 500"),
        ("since:soon", 7, "'soon' is not a time; write 2h"),
        ("since:20261118", 7, "'20261118' is not a time"),
        ("since:2026-13-01", 7, "'2026-13-01' is not a time"),
        ("since:2026-W47-3", 7, "is not a time"),
        ("since:9999-12-31", 7, "year"),
        ("created:2h", 9, "'2h' is a moment; write `>2h`"),
        ("created:1h..2h", 9, "smaller bound first"),
        ("group:nothex", 7, "is not a group"),
        ("label:te*", 7, "has no wildcard"),
        ("label:=x", 7, "names no label"),
    ],
)
def test_errors_name_the_place_and_what_is_known(text: str, column: int, says: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        read_filter(text, REQUESTS, NOON)
    assert refused.value.detail.startswith(f"column {column}: ")
    assert says in refused.value.detail
    assert refused.value.column == column


def test_an_unknown_field_is_told_all_known_ones() -> None:
    with pytest.raises(InvalidFilter) as refused:
        read_filter("nonsense:1", RUNS, NOON)
    assert all(f"`{name}`" in refused.value.detail for name in RUNS.names())


def test_the_same_word_has_the_meaning_of_its_resource() -> None:
    (term,) = read_filter("state:dead", AGENTS, NOON).terms
    assert term.conditions == (Pattern(Match.WHOLE, "dead"),)
    with pytest.raises(InvalidFilter, match="not a value of `state`"):
        read_filter("state:dead", RUNS, NOON)
    assert read_filter("run:a", RUNS, NOON).terms[0].facts == ("id",)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_example_is_good(table: FieldTable) -> None:
    for field in table.fields:
        for name in (field.name, *field.aliases):
            for example in field.examples:
                (term,) = read_filter(f"{name}:{example}", table, NOON).terms
                assert term.facts == (field.fact,)
                assert term.conditions


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_is_whole(table: FieldTable) -> None:
    names = [name for field in table.fields for name in (field.name, *field.aliases)]
    assert len(names) == len(set(names))
    plain = {field.name for field in table.fields if not field.of}
    assert set(table.text) <= plain
    for field in table.fields:
        assert field.help.endswith(".")
        assert "|" not in field.help
        assert field.examples
        assert field.fact in plain
        assert all(set(words) <= set(field.words) for words in field.groups.values())
        assert not set(field.groups) & set(field.words)
        assert bool(field.words) == (field.type == "word")


def test_the_column_travels_with_the_error() -> None:
    sent = msgspec.json.encode(problem_of(InvalidFilter("column 3: wrong", 3, 2)))
    got = error_from(400, PROBLEM, sent)
    assert isinstance(got, InvalidFilter)
    assert (got.detail, got.column, got.length) == ("column 3: wrong", 3, 2)
    assert b"column" not in msgspec.json.encode(problem_of(InvalidInput("wrong")))
    plain = error_from(400, PROBLEM, b'{"code": "invalid_filter", "detail": "wrong"}')
    assert isinstance(plain, InvalidFilter)
    assert plain.column == 0
