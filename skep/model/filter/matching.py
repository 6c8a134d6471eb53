"""Whether one row fits a checked filter, in memory. Pure; for live updates, and for what a
database cannot search.

A row is a mapping from facts to text, numbers, labels (a mapping) or several texts. The rules
are those of `checked.py`; a test compares the results with every database.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase, ascii_uppercase

from skep.model.filter.checked import (
    Between,
    CheckedFilter,
    CheckedTerm,
    Condition,
    LabelIs,
    Match,
    Pattern,
)

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def matches(wanted: CheckedFilter, row: Mapping[str, object]) -> bool:
    """Whether every term of the filter fits the row."""
    return all(_fits(term, row) for term in wanted.terms)


def folded(text: str) -> str:
    """In lower case as far as every database agrees: ASCII letters."""
    return text.translate(_LOWER)


def _fits(term: CheckedTerm, row: Mapping[str, object]) -> bool:
    found = any(
        _met(condition, row.get(fact)) for fact in term.facts for condition in term.conditions
    )
    return found != term.negated


def _met(condition: Condition, value: object) -> bool:
    if isinstance(condition, LabelIs):
        return isinstance(value, Mapping) and _labelled(condition, value)
    if isinstance(condition, Between):
        return isinstance(value, int | float) and _between(condition, value)
    if isinstance(value, tuple | list):
        return any(_met(condition, one) for one in value)
    return isinstance(value, str) and bool(value) and _like(condition, value)


def _labelled(wanted: LabelIs, labels: Mapping[str, str]) -> bool:
    if not wanted.name:
        return bool(labels)
    value = labels.get(wanted.name)
    if value is None or wanted.value is None:
        return value is not None
    return _like(wanted.value, value)


def _between(wanted: Between, value: float) -> bool:
    return _above(wanted, value) and _below(wanted, value)


def _above(wanted: Between, value: float) -> bool:
    if wanted.low is None:
        return True
    return value > wanted.low or (value == wanted.low and not wanted.above_low)


def _below(wanted: Between, value: float) -> bool:
    if wanted.high is None:
        return True
    return value < wanted.high or (value == wanted.high and not wanted.below_high)


def _like(wanted: Pattern, value: str) -> bool:
    text = folded(value) if wanted.fold else value
    match wanted.match:
        case Match.WHOLE:
            return text == wanted.text
        case Match.STARTS:
            return text.startswith(wanted.text)
        case Match.ENDS:
            return text.endswith(wanted.text)
        case Match.CONTAINS:
            return wanted.text in text
        case Match.ANY:
            return bool(text)
