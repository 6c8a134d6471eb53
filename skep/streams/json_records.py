"""Records as JSON, the same for every sink; records that JSON cannot express are refused.

Pure. Numbers that are not numbers (NaN, infinity) are written as null, as in every JSON;
bytes as base64, moments as ISO 8601.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from skep.errors import InvalidInput
from skep.streams.ports import Record, Refused

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def as_json(value: Any) -> bytes:
    """One line of UTF-8; raises InvalidInput for what JSON cannot say."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # UnicodeEncodeError (half of a surrogate pair) is a kind of ValueError.
        raise InvalidInput(f"it cannot be written as JSON: {error}") from error


def plain(value: Any) -> Any:
    """A field's value as None, bool, int, float, str, list or dict; raises InvalidInput."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"it is not plain data: {error}") from error


def field_of(record: Record, name: str) -> Any:
    """The value of a key field; raises InvalidInput when there is none."""
    value = plain(record.data.get(name))
    if value is None or isinstance(value, list | dict) or value == "":
        raise InvalidInput(f"its key field {name!r} is missing or does not hold a single value")
    return value


def key_text(value: Any) -> str:
    """A key's value as text: true and 1 and "1" stay what they look like."""
    return value if isinstance(value, str) else as_json(value).decode()


def sort_out(
    records: Sequence[Record], make: Callable[[Record], T]
) -> tuple[list[T], list[Refused]]:
    """(what `make` made of each, those for which it raised InvalidInput)."""
    made: list[T] = []
    refused: list[Refused] = []
    for record in records:
        try:
            made.append(make(record))
        except InvalidInput as error:
            refused.append(Refused(record.position, error.detail))
    return made, refused
