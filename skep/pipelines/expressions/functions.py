"""The functions that expressions can call. Pure; the clock is an argument.

A function gets values of any type: absent fields are None. It raises TypeError or ValueError for
what it cannot use, and never makes a value beyond the limits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from skep.pipelines.expressions.limits import SIZE_LIMIT, OverLimit
from skep.runtime.clock import Clock

Function = Callable[..., Any]
_DIGITS = 100


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"needs a text, not {type(value).__name__}")
    return str(_within(value))


def _within(value: Any) -> Any:
    if len(value) > SIZE_LIMIT:
        raise OverLimit(f"a value exceeds {SIZE_LIMIT} characters or entries")
    return value


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"needs a list, not {type(value).__name__}")
    made: list[Any] | tuple[Any, ...] = _within(value)
    return made


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | None):
        raise TypeError(f"needs a text or a number, not {type(value).__name__}")
    if isinstance(value, str) and len(value) > _DIGITS:
        raise OverLimit(f"a number has more than {_DIGITS} characters")
    return value


def to_int(value: Any) -> int:
    return int(_scalar(value))


def to_float(value: Any) -> float:
    return float(_scalar(value))


def to_str(value: Any) -> str:
    """Texts and numbers; None is the empty text, and true and false are as in JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise TypeError(f"needs a text or a number, not {type(value).__name__}")
    return str(value)


def to_json(value: Any) -> str:
    return str(_within(msgspec.json.encode(value).decode()))


def from_json(value: Any) -> Any:
    return msgspec.json.decode(_text(value))


def coalesce(*values: Any) -> Any:
    """The first value that is not None."""
    return next((value for value in values if value is not None), None)


def replace(text: Any, old: Any, new: Any) -> str:
    text, old, new = _text(text), _text(old), _text(new)
    if len(text) + text.count(old) * (len(new) - len(old)) > SIZE_LIMIT:
        raise OverLimit(f"a value exceeds {SIZE_LIMIT} characters or entries")
    return str(text.replace(old, new))


def join(separator: Any, values: Any) -> str:
    parts = [to_str(value) for value in _list(values)]
    if sum(map(len, parts)) + len(parts) * len(_text(separator)) > SIZE_LIMIT:
        raise OverLimit(f"a value exceeds {SIZE_LIMIT} characters or entries")
    return str(separator.join(parts))


def total(values: Any) -> Any:
    numbers = _list(values)
    if not all(isinstance(value, int | float) for value in numbers):
        raise TypeError("needs a list of numbers")
    return sum(numbers)


def digest(*values: Any) -> str:
    """32 hexadecimal digits that depend on all values; the same in every process."""
    made = hashlib.blake2b(digest_size=16)
    for value in values:
        made.update(msgspec.json.encode(value))
        made.update(b"\n")
    return made.hexdigest()


def host(url: Any) -> str:
    return urlsplit(_text(url)).hostname or ""


def parse_time(value: Any) -> float:
    """Seconds since 1970 of an ISO 8601 text; without a zone it is UTC."""
    found = datetime.fromisoformat(_text(value))
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def format_time(seconds: Any) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def date(seconds: Any) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def truth(value: Any) -> bool:
    return bool(value)


def length(value: Any) -> int:
    return len(value)


def contains(text: Any, part: Any) -> bool:
    return _text(part) in _text(text)


def in_order(values: Any) -> list[Any]:
    return sorted(_list(values))


def to_rounded(number: Any, digits: Any = None) -> Any:
    """An integer, or with `digits` a float: an integer with many negative digits would be slow."""
    if digits is None:
        return number if isinstance(number, int) else round(to_float(number))
    return round(to_float(number), digits)


def keys_of(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        raise TypeError(f"needs a mapping, not {type(value).__name__}")
    return list(_within(value))


#: Name -> function. `matches` and `extract` are made by the compiler: their pattern is compiled.
PLAIN: Mapping[str, Function] = {
    "abs": abs,
    "all": lambda values: all(_list(values)),
    "any": lambda values: any(_list(values)),
    "bool": truth,
    "coalesce": coalesce,
    "contains": contains,
    "date": date,
    "endswith": lambda text, end: _text(text).endswith(_text(end)),
    "float": to_float,
    "format_time": format_time,
    "from_json": from_json,
    "hash": digest,
    "host": host,
    "int": to_int,
    "join": join,
    "json": to_json,
    "keys": keys_of,
    "len": length,
    "lower": lambda text: _text(text).lower(),
    "max": lambda *values: max(_list(values[0]) if len(values) == 1 else values),
    "min": lambda *values: min(_list(values[0]) if len(values) == 1 else values),
    "replace": replace,
    "round": to_rounded,
    "sorted": in_order,
    "split": lambda text, by: _text(text).split(_text(by)),
    "startswith": lambda text, start: _text(text).startswith(_text(start)),
    "str": to_str,
    "strip": lambda text: _text(text).strip(),
    "sum": total,
    "time": parse_time,
    "upper": lambda text: _text(text).upper(),
}
#: Functions that take a text and a pattern.
WITH_PATTERN = frozenset({"matches", "extract"})
NAMES = frozenset({*PLAIN, *WITH_PATTERN, "now"})


def functions(clock: Clock) -> dict[str, Function]:
    """The whole table, but for functions with patterns."""
    return {**PLAIN, "now": clock.now}
