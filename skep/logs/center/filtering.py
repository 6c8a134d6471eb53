"""A filter of the filter language as a query for log lines. Pure; used by centers.

Terms that pieces, summaries or the scan can answer become parts of the query. Other terms are
checked on each line, so the result is exact for every filter.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from skep.logs.center.query import LEVEL_WORDS, LogQuery
from skep.model.filter.checked import Between, CheckedFilter, CheckedTerm, Match, Pattern
from skep.model.logs import LogSourceKind, level_bit

#: Facts of which a term with plain names selects pieces, and the field of the query.
_NAMES = {"run": "runs", "agent": "agents"}


def query_of(wanted: CheckedFilter, pattern: str = "", level: int = 0) -> LogQuery:
    """All conditions together."""
    query = LogQuery(pattern=pattern, level=level)
    for term in wanted.terms:
        query = _with(query, term)
    return query


def _with(query: LogQuery, term: CheckedTerm) -> LogQuery:
    fact = term.facts[0]
    if fact == "line" and (found := _with_text(query, term)) is not None:
        return found
    if fact == "at" and not term.negated:
        query = _with_time(query, term)
    elif fact == "level" and not term.negated and not query.level_bits:
        return replace(query, level_bits=_level_bits(_whole(term) or ()))
    elif fact == "source" and not term.negated and not query.kinds:
        kinds = tuple(LogSourceKind(name) for name in _whole(term) or ())
        return replace(query, kinds=kinds)
    elif _selects(query, term):
        return replace(query, **{_NAMES[fact]: _whole(term)})
    return replace(query, terms=(*query.terms, term))


def _selects(query: LogQuery, term: CheckedTerm) -> bool:
    """Whether the term is a list of plain names, the first one of its field."""
    field = _NAMES.get(term.facts[0], "")
    return bool(field and not term.negated and _whole(term) and not getattr(query, field))


def _with_text(query: LogQuery, term: CheckedTerm) -> LogQuery | None:
    """None when the texts cannot be words of the query: alternatives, beginnings and ends."""
    words = _contained(term)
    if words is None or (len(words) > 1 and not term.negated):
        return None
    if term.negated:
        return replace(query, without=(*query.without, *words))
    return replace(query, words=(*query.words, *words))


def _with_time(query: LogQuery, term: CheckedTerm) -> LogQuery:
    """Bounds of the pieces to read; each line is checked against the exact bounds."""
    if len(term.conditions) != 1 or not isinstance(term.conditions[0], Between):
        return query
    low, high = term.conditions[0].low, term.conditions[0].high
    since = [float(one) for one in (query.since, low) if one is not None]
    until = [float(one) for one in (query.until, high) if one is not None]
    return replace(query, since=max(since, default=None), until=min(until, default=None))


def _level_bits(words: Sequence[str]) -> int:
    bits = 0
    for number, word in enumerate(LEVEL_WORDS):
        if word in words:
            bits |= level_bit(number * 10)
    return bits


def _whole(term: CheckedTerm) -> tuple[str, ...] | None:
    return _texts(term, Match.WHOLE)


def _contained(term: CheckedTerm) -> tuple[str, ...] | None:
    return _texts(term, Match.CONTAINS)


def _texts(term: CheckedTerm, match: Match) -> tuple[str, ...] | None:
    """The texts of all conditions, if all of them match in this way."""
    found = [one for one in term.conditions if isinstance(one, Pattern) and one.match is match]
    return tuple(one.text for one in found) if len(found) == len(term.conditions) else None
