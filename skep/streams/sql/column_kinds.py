"""What a value is to a table: its kind, the column it needs, and how it is written there.

Pure. Five kinds are ours (bool, int, float, text, json); a column that another program
made with another type is `other`, and takes what the database makes of the value.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from skep.errors import InvalidInput
from skep.streams.json_records import as_json

INT_LIMIT = 2**63
#: Up to here every whole number is exactly itself as a float.
FLOAT_LIMIT = 2**53
#: Bytes of a name that every one of the databases keeps whole.
NAME_BYTES = 60
#: Beyond letters and digits. No quote, bracket, percent, colon or backslash: names are
#: quoted anyway, and nothing that a driver might read is among them.
NAME_SIGNS = frozenset("_-. $#@/")
LAST_NAME_CHARACTER = 0xFFFF


class Kind(StrEnum):
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"
    OTHER = "other"


def check_name(name: str) -> str:
    """The name of a table or column as it is; raises InvalidInput for one that cannot be."""
    good = name == name.strip() and all(
        (letter.isalnum() and ord(letter) <= LAST_NAME_CHARACTER) or letter in NAME_SIGNS
        for letter in name
    )
    if not good or not 0 < len(name.encode()) <= NAME_BYTES:
        shown = ascii(name[:NAME_BYTES])
        raise InvalidInput(
            f"{shown} cannot be a column: use letters, digits and _-. $#@/, "
            f"at most {NAME_BYTES} bytes"
        )
    return name


def kind_of(value: Any) -> Kind:
    """The narrowest kind that holds a value; None never gets here."""
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.INT if -INT_LIMIT <= value < INT_LIMIT else Kind.TEXT
    if isinstance(value, float):
        return Kind.FLOAT
    return Kind.TEXT if isinstance(value, str) else Kind.JSON


def wider(column: Kind, value: Any) -> Kind:
    """The kind that a column must have to hold also this value."""
    if column in {Kind.TEXT, Kind.JSON, Kind.OTHER}:
        return column
    kind = kind_of(value)
    if kind is column:
        return column
    if column is Kind.FLOAT and kind is Kind.INT:
        return Kind.TEXT if is_large(value) else Kind.FLOAT
    if column is Kind.INT and kind is Kind.FLOAT:
        return Kind.FLOAT
    return Kind.TEXT


def is_large(value: Any) -> bool:
    """Whether it is a whole number that might change as a float."""
    return isinstance(value, int) and abs(value) > FLOAT_LIMIT


def written(value: Any, column: Kind) -> Any:
    """A value as its column takes it; the column is wide enough."""
    if value is None:
        return None
    if column is Kind.JSON:
        return as_json(value).decode()
    if column is Kind.FLOAT:
        return float(value)
    if column is Kind.TEXT or isinstance(value, list | dict):
        return value if isinstance(value, str) else as_json(value).decode()
    return value


def has_nul(value: Any) -> bool:
    """Whether a zero character is anywhere in it."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(has_nul(key) or has_nul(inner) for key, inner in value.items())
    return isinstance(value, list) and any(has_nul(inner) for inner in value)
