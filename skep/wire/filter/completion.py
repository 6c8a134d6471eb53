"""What can follow where the cursor is in a filter: fields, operators, words and known values.

Run by the command line (shell completion) and the portal. The text may be wrong or half
written; completion never raises because of it. Values that only a center knows, such as names of
jobs, come from a callable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from skep.model.filter.fields import Field, FieldTable, FieldType
from skep.model.filter.syntax import COMPARISONS, quoted_if_needed
from skep.wire.filter.parser import is_name
from skep.wire.filter.problems import similar

#: Suggestions of one call.
SUGGESTIONS_LIMIT = 50
#: (fact, beginning) -> values that are known.
ValuesOf = Callable[[str, str], Iterable[str]]
_TIMES = {FieldType.TIME, FieldType.SINCE, FieldType.UNTIL}
_SPANS = ("15m", "1h", "24h", "7d")
_MEANINGS = {">": "more than", ">=": "at least", "<": "less than", "<=": "at most"}


class Suggestion(msgspec.Struct, frozen=True):
    """A text for the place from `start` to `end`, which count characters from 0."""

    text: str
    start: int
    end: int
    help: str = ""


def no_values(_fact: str, _beginning: str) -> Iterable[str]:
    """For callers that know no values."""
    return ()


def complete(
    text: str, cursor: int, table: FieldTable, values_of: ValuesOf = no_values
) -> list[Suggestion]:
    """What can stand at the cursor, the likeliest first."""
    place = _place(text, max(0, min(cursor, len(text))))
    if place.name is None:
        found = _fields(place, table)
    else:
        field = table.find(place.name.lower())
        found = iter(()) if field is None else _values(place, field, values_of)
    return [one for one, _ in zip(found, range(SUGGESTIONS_LIMIT), strict=False)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the cursor is: in the name of a field, or in a value of one."""

    #: The field whose value is written; None while it is not known.
    name: str | None
    #: What is written already, without an opening quote.
    typed: str
    start: int
    end: int
    #: Values of the same term that stand before.
    before: tuple[str, ...] = ()
    #: The value follows a comparison such as `>`.
    compared: bool = False

    def suggest(self, text: str, help_text: str = "") -> Suggestion:
        return Suggestion(text, self.start, self.end, help_text)


def _place(text: str, cursor: int) -> _Place:
    term, commas, in_quotes = _last_term(text[:cursor])
    begin = term + (text[term:cursor].startswith("-"))
    name, colon, _ = text[begin:cursor].partition(":")
    if not colon or not is_name(name):
        return _Place(None, text[begin:cursor], begin, _end_of_name(text, cursor))
    bounds = [begin + len(name) + 1, *(comma + 1 for comma in commas)]
    before = tuple(text[first : second - 1] for first, second in pairwise(bounds))
    mark = next((mark for mark in COMPARISONS if text.startswith(mark, bounds[-1], cursor)), "")
    start, end = bounds[-1] + len(mark), _end_of_value(text, cursor, in_quotes)
    return _Place(name, text[start:cursor].removeprefix('"'), start, end, before, bool(mark))


def _last_term(head: str) -> tuple[int, list[int], bool]:
    """Where the last term begins, where its commas are, and whether a quote is open."""
    term, in_quotes, at = 0, False, 0
    commas: list[int] = []
    while at < len(head):
        letter = head[at]
        if letter == '"':
            in_quotes = not in_quotes
        elif in_quotes and letter == "\\":
            at += 1
        elif not in_quotes and letter.isspace():
            term, commas = at + 1, []
        elif not in_quotes and letter == ",":
            commas.append(at)
        at += 1
    return term, commas, in_quotes


def _end_of_name(text: str, at: int) -> int:
    """After the rest of the name, and its colon."""
    while at < len(text) and is_name(f"x{text[at]}"):
        at += 1
    return at + text.startswith(":", at)


def _end_of_value(text: str, at: int, in_quotes: bool) -> int:
    """After the rest of the word, or of the quoted text."""
    if in_quotes:
        return max(at, text.find('"', at) + 1)
    while at < len(text) and text[at] != "," and not text[at].isspace():
        at += 1
    return at


def _fields(place: _Place, table: FieldTable) -> Iterator[Suggestion]:
    typed = place.typed.lower()
    begin = [one for one in table.fields if _begins(one, typed)]
    names = {one.name: one for one in table.fields}
    for field in begin or [names[name] for name in similar(typed, names)]:
        yield place.suggest(f"{field.name}:", field.help)


def _begins(field: Field, typed: str) -> bool:
    return any(name.startswith(typed) for name in (field.name, *field.aliases))


def _values(place: _Place, field: Field, values_of: ValuesOf) -> Iterator[Suggestion]:
    for word, meaning in _candidates(place, field, values_of):
        if word.lower().startswith(place.typed.lower()):
            written = quoted_if_needed(word)
            if written not in place.before:
                yield place.suggest(written, meaning)
    if not place.typed:
        yield from _operators(place, field)


def _candidates(place: _Place, field: Field, values_of: ValuesOf) -> Iterator[tuple[str, str]]:
    yield from ((word, "") for word in field.words)
    yield from ((word, ", ".join(several)) for word, several in field.groups.items())
    if field.type in _TIMES:
        # A moment has nothing that equals it, a day has.
        moments = place.compared or field.type is not FieldType.TIME
        yield from ((word, "") for word in ("today", "yesterday"))
        yield from ((word, f"{word} ago") for word in _SPANS if moments)
    if not place.compared:
        yield from ((value, "") for value in values_of(field.fact, place.typed))


def _operators(place: _Place, field: Field) -> Iterator[Suggestion]:
    if place.compared:
        return
    for mark, operator in COMPARISONS.items():
        if operator in field.operators:
            yield place.suggest(mark, _MEANINGS[mark])
    if not field.words:
        yield from (place.suggest(example, "example") for example in field.examples)
