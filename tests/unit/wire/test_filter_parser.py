"""The filter language: what its parser reads, what it refuses, and how it prints a tree."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import InvalidFilter, InvalidInput
from skep.model.filter.syntax import (
    TERMS_LIMIT,
    TEXT_LIMIT,
    VALUES_LIMIT,
    FilterTerm,
    FilterTree,
    FilterValue,
    Operator,
    quoted,
)
from skep.wire.filter.parser import parse

EXAMPLE = (
    "state:failed,dead job:quotes host:*.example.com error:timeout since:2h "
    'duration:>30s "free text" -label:eu'
)


def one(text: str) -> FilterValue:
    """The only value of the only term."""
    (term,) = parse(text).terms
    (value,) = term.values
    return value


def test_the_example_of_the_pages_is_read() -> None:
    terms = parse(EXAMPLE).terms
    assert [term.field for term in terms] == [
        *("state", "job", "host", "error", "since", "duration", "", "label")
    ]
    assert [value.text for value in terms[0].values] == ["failed", "dead"]
    assert terms[2].values == (FilterValue(Operator.ENDS, ".example.com"),)
    assert terms[5].values == (FilterValue(Operator.GREATER, "30s"),)
    assert terms[6].values == (FilterValue(Operator.EQUALS, "free text"),)
    assert [term.negated for term in terms] == [False] * 7 + [True]
    assert str(parse(EXAMPLE)) == EXAMPLE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x:a", FilterValue(Operator.EQUALS, "a")),
        ('x:"a"', FilterValue(Operator.EQUALS, "a")),
        ("x:a*", FilterValue(Operator.STARTS, "a")),
        ("x:*a", FilterValue(Operator.ENDS, "a")),
        ("x:*a*", FilterValue(Operator.CONTAINS, "a")),
        ('x:*"a b"*', FilterValue(Operator.CONTAINS, "a b")),
        ("x:*", FilterValue(Operator.ANY)),
        ('x:"*"', FilterValue(Operator.EQUALS, "*")),
        ("x:>5", FilterValue(Operator.GREATER, "5")),
        ("x:>=5", FilterValue(Operator.AT_LEAST, "5")),
        ("x:<5", FilterValue(Operator.LESS, "5")),
        ("x:<=5", FilterValue(Operator.AT_MOST, "5")),
        ("x:2..5", FilterValue(Operator.RANGE, "2", "5")),
        ("x:2..", FilterValue(Operator.AT_LEAST, "2")),
        ("x:..5", FilterValue(Operator.AT_MOST, "5")),
        ("x:-1", FilterValue(Operator.EQUALS, "-1")),
        ("x:12:30:00Z", FilterValue(Operator.EQUALS, "12:30:00Z")),
        ('x:"a\\"b\\\\c\\d"', FilterValue(Operator.EQUALS, 'a"b\\c\\d')),
        ("X:a", FilterValue(Operator.EQUALS, "a")),
        ("x:中文", FilterValue(Operator.EQUALS, "中文")),
    ],
)
def test_values_are_read(text: str, value: FilterValue) -> None:
    assert one(text) == value
    assert parse(text).terms[0].field == "x"


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("state:", 7, "`state` has no value"),
        ("a state:x,,y", 11, "`state` has no value"),
        ("state:x,", 9, "`state` has no value"),
        ("x:>", 4, "no value"),
        ('x:""', 3, "-name:*"),
        ('a "never closed', 3, "closing"),
        ("x:a*b", 5, "first or the last"),
        ("x:***", 5, "first or the last"),
        ('x:a"b', 4, "double quotes"),
        ('x:"a"b', 6, "double quotes"),
        ("x:..", 3, "a bound"),
        ("x:a..b..c", 7, "between two bounds"),
        ("12:30", 1, "not a field name"),
        ("a /path:80", 3, "not a field name"),
        ("-", 2, "must follow"),
        ("a --b", 4, "must follow"),
        ("a\0b", 2, "remove it"),
        ("ab\ud800", 3, "remove it"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_column(text: str, column: int, says: str) -> None:
    with pytest.raises(InvalidFilter, match=f"column {column}: ") as refused:
        parse(text)
    assert says in refused.value.detail
    assert refused.value.column == column
    assert refused.value.length >= 1
    assert isinstance(refused.value, InvalidInput)


def test_bounds() -> None:
    """What is at the bound is read, what is over it is refused with a sentence."""
    assert parse("a" * TEXT_LIMIT)
    assert len(parse(" ".join("a" * TERMS_LIMIT)).terms) == TERMS_LIMIT
    assert len(parse("x:" + ",".join("a" * VALUES_LIMIT)).terms[0].values) == VALUES_LIMIT
    with pytest.raises(InvalidFilter, match="2001 characters, the limit is 2000"):
        parse("a" * (TEXT_LIMIT + 1))
    with pytest.raises(InvalidFilter, match="at most 50 terms") as terms:
        parse(" ".join("a" * (TERMS_LIMIT + 1)))
    assert terms.value.column == 2 * TERMS_LIMIT + 1
    with pytest.raises(InvalidFilter, match="at most 100 values"):
        parse("x:" + ",".join("a" * (VALUES_LIMIT + 1)))


@pytest.mark.parametrize(
    "piece", ["a", "*", "..", '"', "\\", ">", "<=", ",", ":", "-", "a:", 'a:"', "x:*a..", "  "]
)
def test_no_text_takes_long(piece: str) -> None:
    """The time for the longest filter is that of its length, whatever it repeats."""
    text = (piece * TEXT_LIMIT)[:TEXT_LIMIT]
    began = time.perf_counter()
    with suppress(InvalidFilter):
        parse(text)
    assert time.perf_counter() - began < 0.2


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
SHORT = WORDS.filter(lambda text: len(text) < 20)
VALUES = st.one_of(
    st.builds(
        FilterValue,
        st.sampled_from([one for one in Operator if one not in {Operator.ANY, Operator.RANGE}]),
        SHORT,
    ),
    st.builds(FilterValue, st.just(Operator.RANGE), SHORT, SHORT),
    st.just(FilterValue(Operator.ANY)),
)
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
TREES = st.builds(
    FilterTree,
    st.lists(
        st.builds(
            FilterTerm,
            st.just("") | NAMES,
            st.lists(VALUES, min_size=1, max_size=4).map(tuple),
            st.booleans(),
        ),
        max_size=6,
    ).map(tuple),
)


@given(TREES)
def test_a_printed_tree_reads_back_as_itself(tree: FilterTree) -> None:
    assert parse(str(tree)) == tree


@given(st.text(st.sampled_from('ab:,*"\\.<>=- \t中\0x1'), max_size=40) | st.text(max_size=40))
def test_every_text_is_read_or_refused(text: str) -> None:
    """A text that is read prints a filter that means the same; a refusal names a place in it."""
    column = refused_at(text)
    if column:
        assert column <= len(text) + 1
        return
    printed = str(parse(text))
    assert parse(printed) == parse(text)
    assert str(parse(printed)) == printed


def refused_at(text: str) -> int:
    """The column of the problem; 0 when there is none."""
    try:
        parse(text)
    except InvalidFilter as refused:
        return refused.column
    return 0


@given(WORDS)
def test_a_quoted_text_is_that_text(text: str) -> None:
    if len(text) < 500:
        assert one(f"x:{quoted(text)}").text == text


def test_columns_say_where_terms_and_values_stand() -> None:
    first, second = parse("a  -job:x,yy").terms
    assert (first.column, second.column) == (1, 4)
    assert [value.column for value in second.values] == [9, 11]
