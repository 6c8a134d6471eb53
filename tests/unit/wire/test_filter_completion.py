"""Completion of half-written filters, for shells and the portal."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.filter.fields import FieldTable
from skep.model.filter.syntax import COMPARISONS
from skep.wire.filter.check import read_filter
from skep.wire.filter.completion import SUGGESTIONS_LIMIT, complete
from skep.wire.filter.parser import parse
from skep.wire.filter.tables import REQUESTS, RUNS, TABLES


def known(fact: str, beginning: str) -> Iterable[str]:
    """What a center would know; it may offer more than was asked for."""
    names = {"job": ["quotes", "quiz", "my shop", "Quarry"], "host": ["example.com"]}
    assert isinstance(beginning, str)
    return names.get(fact, [])


def completed(typed: str) -> list[str]:
    """The whole filter after each suggestion; `|` is the cursor."""
    text, cursor = typed.replace("|", ""), typed.index("|")
    found = complete(text, cursor, REQUESTS, known)
    return [text[: one.start] + one.text + text[one.end :] for one in found]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("sta|", ["state:", "status:"]),
        ("-sta|", ["-state:", "-status:"]),
        ("run:a sta|", ["run:a state:", "run:a status:"]),
        ("ur|", ["uri:"]),
        ("url|", ["uri:"]),
        ("stae|", ["state:"]),
        ("st|ate:dead", ["state:dead", "status:dead"]),
        ("created:>y|", ["created:>yesterday"]),
        ("created:>2|", ["created:>24h"]),
        ("created:2|", []),
        ("state:de|", ["state:delayed", "state:dead"]),
        ("state:dead,de|", ["state:dead,delayed"]),
        ("state:DE|", ["state:delayed", "state:dead"]),
        ("-state:de| a", ["-state:delayed a", "-state:dead a"]),
        ("state:d|xx a", ["state:delayed a", "state:done a", "state:dead a"]),
        ("job:qu|", ["job:quotes", "job:quiz", "job:Quarry"]),
        ("job:my|", ['job:"my shop"']),
        ('job:"my s|', ['job:"my shop"']),
        ('job:"my s|" a', ['job:"my shop" a']),
        ("since:to|", ["since:today"]),
        ("since:2|", ["since:24h"]),
        ('uri:"a b" state:ca|', ['uri:"a b" state:cancelled']),
        ("nonsense:a|", []),
        ("state:zzz|", []),
    ],
)
def test_what_can_follow(typed: str, wanted: list[str]) -> None:
    assert completed(typed) == wanted


def test_an_empty_filter_offers_every_field_with_its_help() -> None:
    found = complete("", 0, RUNS)
    assert [one.text for one in found] == [f"{name}:" for name in RUNS.names()]
    assert all(one.help.endswith(".") for one in found)


def test_an_empty_value_offers_words_groups_operators_and_examples() -> None:
    words = completed("state:|")
    assert words[:2] == ["state:waiting", "state:queued"]
    assert "state:open" in words
    assert "state:>" not in words
    assert completed("duration:|")[:4] == ["duration:>=", "duration:<=", "duration:>", "duration:<"]
    assert "duration:>30s" in completed("duration:|")


def test_suggestions_are_bounded() -> None:
    many = complete("job:", 4, REQUESTS, lambda *_: (f"job{number}" for number in range(10_000)))
    assert len(many) == SUGGESTIONS_LIMIT


@given(st.text(st.sampled_from('state:jobqu,*"\\.<>=- 中'), max_size=30), st.integers(-1, 31))
def test_no_text_breaks_it(text: str, cursor: int) -> None:
    for one in complete(text, cursor, REQUESTS, known):
        assert 0 <= one.start <= one.end <= len(text)
        parse(one.text if ":" not in one.text or one.text[-1] != ":" else f"{one.text}x")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_what_is_offered_is_good(table: FieldTable) -> None:
    for field in table.fields:
        text = f"{field.name}:"
        for one in complete(text, len(text), table):
            if one.text not in COMPARISONS:
                read_filter(text + one.text, table, 1_700_000_000.0)
