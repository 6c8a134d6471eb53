"""Reads the values of a filter by the type of their field: `2h`, `>1MB`, `*.example.com`.

Run by centers, the command line and the portal. Each reader returns conditions or raises
ValueError with what is wrong with the value and what to write; `check.py` adds the place.
Times without a zone are UTC. The clock is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from skep.model.failures.failure_fingerprint import group_name, parse_group
from skep.model.filter.checked import Between, Condition, LabelIs, Match, Number, Pattern
from skep.model.filter.fields import Field, FieldType
from skep.model.filter.matching import folded
from skep.model.filter.syntax import FilterValue, Operator

#: Units of time, in seconds.
SPANS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
#: Units of size, in bytes.
SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
#: What every database can compare with.
LARGEST = 2**63 - 1
#: Days that need no number.
_DAYS = ("today", "yesterday")

_SPAN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|min|s|m|h|d|w)")
_PLAIN = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([a-z]{0,3})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_EPOCH = re.compile(r"[0-9]{9,11}(?:\.[0-9]{1,6})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?")
_MATCHES = {
    Operator.EQUALS: Match.WHOLE,
    Operator.STARTS: Match.STARTS,
    Operator.ENDS: Match.ENDS,
    Operator.CONTAINS: Match.CONTAINS,
    Operator.ANY: Match.ANY,
}
#: Start and end of what a value names: equal for a number or a moment, a day apart for a date.
Stretch = tuple[Number, Number]
#: Fields that bound another one, by the operator that does the same.
_BOUNDS = {FieldType.SINCE: Operator.AT_LEAST, FieldType.UNTIL: Operator.LESS}


def conditions_of(field: Field, value: FilterValue, now: float) -> tuple[Condition, ...]:
    """What a value asks of the field; raises ValueError. The operator is one of the field's."""
    if field.type is FieldType.WORD:
        return _words(field, value)
    if field.type in _TEXTS:
        return (_TEXTS[field.type](value),)
    if value.operator is Operator.ANY:
        return (Between(),)
    if field.type in _NUMBERS:
        read = _NUMBERS[field.type]
        return (_between(value, lambda text: (read(text), read(text))),)
    return (_time(field.type, value, now),)


def text_pattern(value: FilterValue) -> Pattern:
    """Free text and `TEXT` fields: without a `*` the value is found anywhere."""
    match = Match.CONTAINS if value.operator is Operator.EQUALS else _MATCHES[value.operator]
    return Pattern(match, folded(value.text), fold=True)


def span_of(text: str) -> float:
    """Seconds of `90`, `30s`, `1h30m`; raises ValueError."""
    lower, at, total = text.lower(), 0, 0.0
    if _PLAIN.fullmatch(lower):
        return round(float(lower), 6)
    while found := _SPAN.match(lower, at):
        total += float(found[1]) * SPANS[found[2]]
        at = found.end()
    if at == 0 or at < len(lower):
        raise ValueError(f"{_short(text)} is not a duration; write 500ms, 30s, 5m, 2h, 7d or 1h30m")
    return round(total, 6)


def size_of(text: str) -> int:
    """Bytes of `500`, `10kB`, `1.5MiB`; raises ValueError."""
    found = _SIZE.fullmatch(text.lower())
    if found is None or found[2] not in SIZES:
        raise ValueError(f"{_short(text)} is not a size; write 500, 10kB, 1.5MB or 2GiB")
    return min(round(float(found[1]) * SIZES[found[2]]), LARGEST)


def integer_of(text: str) -> int:
    """A whole number that every database can hold; raises ValueError."""
    if _INTEGER.fullmatch(text) is None or abs(int(text)) > LARGEST:
        raise ValueError(f"{_short(text)} is not a whole number of at most 19 digits")
    return int(text)


def stretch_of(text: str, now: float) -> tuple[float, float]:
    """Start and end of `2h` (ago), `2026-11-18`, `2026-11-18T12:30Z`, `today`; ValueError."""
    lower = text.lower()
    if lower == "now":
        return now, now
    if lower in _DAYS:
        return _day(datetime.fromtimestamp(now, UTC).date().isoformat(), lower == "yesterday")
    if _EPOCH.fullmatch(text):
        return float(text), float(text)
    if _DATE.fullmatch(text):
        return _day(text)
    if found := _DATE_TIME.match(text):
        start = _parsed(text).timestamp()
        return start, start + _width(found)
    if not _SPAN.match(lower):
        raise _not_a_time(text)
    ago = now - span_of(text)
    return ago, ago


def _words(field: Field, value: FilterValue) -> tuple[Condition, ...]:
    word = value.text.lower()
    found = field.groups.get(word, (word,) if word in field.words else ())
    return tuple(Pattern(Match.WHOLE, one) for one in found)


def _name(value: FilterValue) -> Pattern:
    return Pattern(_MATCHES[value.operator], value.text)


def _host(value: FilterValue) -> Pattern:
    return Pattern(_MATCHES[value.operator], folded(value.text))


def _group(value: FilterValue) -> Pattern:
    if value.operator is Operator.ANY:
        return Pattern(Match.ANY)
    fault, host = parse_group(value.text)
    if host is None:
        return Pattern(Match.STARTS, group_name(fault, ""))
    return Pattern(Match.WHOLE, group_name(fault, host))


def _label(value: FilterValue) -> LabelIs:
    if value.operator is Operator.ANY:
        return LabelIs()
    name, sign, text = value.text.partition("=")
    if not name:
        raise ValueError(f"{_short(value.text)} names no label; write `eu` or `team=a`")
    if value.operator is Operator.EQUALS:
        return LabelIs(name, Pattern(Match.WHOLE, text) if sign else None)
    if not sign:
        raise ValueError(f"a label's name has no wildcard; write `{name[:40]}` or `name=value*`")
    return LabelIs(name, Pattern(Match.STARTS, text) if text else None)


def _time(kind: FieldType, value: FilterValue, now: float) -> Between:
    operator = _BOUNDS.get(kind, value.operator)
    found = _between(replace(value, operator=operator), lambda text: stretch_of(text, now))
    if operator is Operator.EQUALS and found.low == found.high:
        raise ValueError(f"{_short(value.text)} is a moment; write `>{value.text[:40]}` or a date")
    return found


def _between(value: FilterValue, read: Callable[[str], Stretch]) -> Between:
    start, end = read(value.text)
    point = start == end
    match value.operator:
        case Operator.GREATER:
            return Between(low=end, above_low=point)
        case Operator.AT_LEAST:
            return Between(low=start)
        case Operator.LESS:
            return Between(high=start, below_high=True)
        case Operator.AT_MOST:
            return Between(high=end, below_high=not point)
        case Operator.RANGE:
            return _range(start, read(value.upper), value)
        case _:
            return Between(low=start, high=end, below_high=not point)


def _range(low: Number, last: Stretch, value: FilterValue) -> Between:
    if low > last[0]:
        shown = _short(f"{value.text}..{value.upper}")
        raise ValueError(f"{shown} is empty; write the smaller bound first")
    return Between(low=low, high=last[1], below_high=last[0] != last[1])


def _parsed(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.upper())
    except ValueError:
        raise _not_a_time(text) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _not_a_time(text: str) -> ValueError:
    return ValueError(
        f"{_short(text)} is not a time; write 2h (two hours ago), 2026-11-18, "
        "2026-11-18T12:30, 2026-11-18T12:30:00+01:00, today or yesterday"
    )


def _width(found: re.Match[str]) -> float:
    """Seconds that a written time stands for: a minute, a second, or a moment."""
    if found[1] is None:
        return 60.0
    return 1.0 if found[2] is None else 0.0


def _day(date: str, before: bool = False) -> tuple[float, float]:
    start = _parsed(date)
    try:
        begin = start - timedelta(days=1) if before else start
        return begin.timestamp(), (begin + timedelta(days=1)).timestamp()
    except OverflowError:
        raise ValueError(f"{_short(date)} is not a time; write a year from 0001 to 9998") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")  # noqa: PLR2004 - fits a line


_NUMBERS: dict[FieldType, Callable[[str], Number]] = {
    FieldType.INTEGER: integer_of,
    FieldType.DURATION: span_of,
    FieldType.SIZE: size_of,
}
_TEXTS: dict[FieldType, Callable[[FilterValue], Condition]] = {
    FieldType.NAME: _name,
    FieldType.TEXT: text_pattern,
    FieldType.HOST: _host,
    FieldType.LABEL: _label,
    FieldType.GROUP: _group,
}
