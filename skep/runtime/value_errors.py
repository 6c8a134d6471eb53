"""Explains a validation error as a sentence: the name, the value and what is allowed.

The validator names types and paths (`$.lanes.mid_limit`), which is for programmers. Pure; it must
never show a secret, so values of fields that may hold one are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

SHOWN = 60
_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_EXPECTED = re.compile(r"Expected `([^`]*)`(.*)")
_STEP = re.compile(r"[^.\[\]]+|\[(\d+|\.\.\.)\]")
_SECRET = re.compile(
    r"url|token|secret|password|key|proxy|proxies|cookie|authorization", re.IGNORECASE
)
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    bytes: "bytes",
    tuple: "a list",
    list: "a list",
    dict: "a table of names and values",
    NoneType: "null",
}
#: The validator's names of types -> words.
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "bytes": "bytes",
    "array": "a list",
    "object": "a table of names and values",
    "null": "null",
}
_BOUNDS = (
    ("ge", "at least {}"),
    ("gt", "more than {}"),
    ("le", "at most {}"),
    ("lt", "less than {}"),
    ("min_length", "of length {} or more"),
    ("max_length", "of length {} or less"),
)
#: Stands for an unknown value: it is below a key that the validator does not name.
_UNSEEN = object()


def explained(error: msgspec.ValidationError, data: Any, kind: Any, noun: str = "setting") -> str:
    """`lanes.mid_limit is 'abc'; it must be a whole number, at least 1`."""
    text = str(error)
    place = _PLACE.search(text)
    path = place[1].replace("[...]", "") if place else ""
    message = _PLACE.sub("", text)
    hint, value = _follow(place[1] if place else "", data, kind)
    if unknown := _UNKNOWN.fullmatch(message):
        return _no_name(_below(path, unknown[1]), _fields(path, hint), noun)
    if missing := _MISSING.fullmatch(message):
        return f"{_below(path, missing[1])} is missing"
    allowed = allowed_values(hint)
    demand = f"it must be {allowed}" if allowed else in_words(message)
    return f"{path or 'it'}{_shown(path, value)}; {demand}"


def no_setting(name: str, known: Iterable[str]) -> str:
    """`there is no setting 'lanes.midlimit'; did you mean 'lanes.mid_limit'?`"""
    near = get_close_matches(name, list(known), n=1)
    return f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def choices(given: object, known: Iterable[str]) -> str:
    """The closest name, else all names: `did you mean 'priority'?`"""
    names = list(known)
    begins = [name for name in names if name.startswith(str(given) or " ")]
    near = begins or get_close_matches(str(given), names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"


def in_words(message: str) -> str:
    """A message of the validator with its type names in words, for use without the type."""
    if not (expected := _EXPECTED.fullmatch(message)):
        return message[:1].lower() + message[1:]
    kind = " or ".join(_WORDS.get(one, one) for one in expected[1].split(" | "))
    bound = expected[2].split(", got")[0].replace(">=", "at least").replace("<=", "at most")
    return f"it must be {kind}{bound}"


def allowed_values(hint: Any) -> str:
    """A type in words, with its bounds; "" for a type without a short name."""
    if get_origin(hint) in {Union, UnionType}:
        kinds = [allowed_values(one) for one in get_args(hint) if one is not NoneType]
        return " or ".join(kinds) if all(kinds) else ""
    metas = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Meta)]
    bare = hint.__origin__ if metas else hint
    kind = _kind_in_words(bare)
    bounds = [
        words.format(limit)
        for name, words in _BOUNDS
        for meta in metas
        if (limit := getattr(meta, name)) is not None
    ]
    meant = [meta.description for meta in metas if meta.pattern and meta.description]
    return ", ".join([kind, *bounds, *meant]) if kind else ""


def _kind_in_words(bare: Any) -> str:
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(str(one) or "''" for one in get_args(bare))
    if isinstance(bare, type) and issubclass(bare, Enum):
        return "one of " + ", ".join(str(one.value) for one in bare)
    if hasattr(bare, "__struct_fields__"):
        return f"a table with the fields {', '.join(bare.__struct_encode_fields__)}"
    return _KINDS.get(get_origin(bare) or bare, "")


def _no_name(name: str, known: Sequence[str], noun: str) -> str:
    if noun == "setting" or not known:
        return no_setting(name, known).replace("setting", noun, 1)
    return f"there is no {noun} {name!r}; {choices(name, known)}"


def _shown(path: str, value: Any) -> str:
    text = _in_short(value) if path else _KINDS.get(type(value), "not valid")
    unseen = value is _UNSEEN or _SECRET.search(path) or len(text) > SHOWN
    return " is not valid" if unseen else f" is {text}"


def _in_short(value: Any) -> str:
    return str(msgspec.json.encode(value).decode()) if _is_word(value) else repr(value)


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fields(path: str, hint: Any) -> list[str]:
    names = getattr(_struct(hint), "__struct_encode_fields__", ())
    return [_below(path, name) for name in names]


def _follow(path: str, data: Any, kind: Any) -> tuple[Any, Any]:
    """(type, value) at a path; None and the unseen value where it cannot be followed."""
    hint, value = kind, data
    for step in _STEP.finditer(path):
        inside = step[1]
        hint = _without_none(_part(hint, step[0]) if inside is None else _element(hint))
        value = _value_at(value, step[0] if inside is None else inside)
    return hint, value


def _value_at(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step, _UNSEEN)
    if isinstance(value, list | tuple) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return _UNSEEN


def _part(hint: Any, name: str) -> Any:
    struct = _struct(hint)
    if struct is None:
        return None
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    return get_type_hints(struct, include_extras=True).get(names.get(name, name))


def _element(hint: Any) -> Any:
    """The type of the elements of a list, or of the values of a table."""
    bare = hint.__origin__ if hasattr(hint, "__metadata__") else hint
    inner = get_args(bare)
    if get_origin(bare) is dict:
        return inner[1]
    return inner[0] if get_origin(bare) in {list, tuple} else None


def _struct(hint: Any) -> Any:
    """The type if it is a struct, or the only struct in a union."""
    among = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    bare = [one.__origin__ if hasattr(one, "__metadata__") else one for one in among]
    structs = [one for one in bare if hasattr(one, "__struct_fields__")]
    return structs[0] if len(structs) == 1 else None


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        kinds = [one for one in get_args(hint) if one is not NoneType]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
