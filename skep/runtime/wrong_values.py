"""What is wrong with a value, as a sentence: its name, the value and what is allowed.

Validation names types and paths (`$.lanes.mid_limit`), which is for programmers. Pure; it must
never show a secret, so values of settings that may hold one are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

SHOWN = 60
_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_SECRET = re.compile(r"url|token|secret|password|key|proxy|proxies", re.IGNORECASE)
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "a list",
    list: "a list",
    dict: "a table of names and values",
}
_BOUNDS = (
    ("ge", "at least {}"),
    ("gt", "more than {}"),
    ("le", "at most {}"),
    ("lt", "less than {}"),
    ("min_length", "of length {} or more"),
    ("max_length", "of length {} or less"),
)


def explained(error: msgspec.ValidationError, data: Any, kind: Any) -> str:
    """`lanes.mid_limit is 'abc'; it must be a whole number, at least 1`."""
    text = str(error)
    place = _PLACE.search(text)
    path = place[1] if place else ""
    message = _PLACE.sub("", text)
    hint, value = _follow(path, data, kind)
    if unknown := _UNKNOWN.fullmatch(message):
        name = f"{path}.{unknown[1]}" if path else unknown[1]
        return no_setting(name, _fields(path, hint))
    allowed = allowed_values(hint)
    if hint is None or not allowed:
        return f"{path}: {message}" if path else message
    shown = "" if _SECRET.search(path) or len(repr(value)) > SHOWN else f" is {value!r}"
    return f"{path}{shown or ' is not valid'}; it must be {allowed}"


def no_setting(name: str, known: Iterable[str]) -> str:
    """`there is no setting 'lanes.midlimit'; did you mean 'lanes.mid_limit'?`"""
    near = get_close_matches(name, list(known), n=1)
    return f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def allowed_values(hint: Any) -> str:
    """A type in words, with its bounds; "" for one that has no short name."""
    metas = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Meta)]
    bare = hint.__origin__ if metas else hint
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(str(one) or "''" for one in get_args(bare))
    kind = _KINDS.get(get_origin(bare) or bare, "")
    bounds = [
        words.format(limit)
        for name, words in _BOUNDS
        for meta in metas
        if (limit := getattr(meta, name)) is not None
    ]
    meant = [meta.description for meta in metas if meta.pattern and meta.description]
    return ", ".join([kind, *bounds, *meant]) if kind else ""


def _fields(path: str, hint: Any) -> list[str]:
    names = getattr(hint, "__struct_fields__", ())
    return [f"{path}.{name}" if path else name for name in names]


def _follow(path: str, data: Any, kind: Any) -> tuple[Any, Any]:
    """(type, value) at a path of names; (None, None) where it leaves structs."""
    hint, value = kind, data
    for name in path.split(".") if path else []:
        hints = _hints(_without_none(hint))
        if name not in hints or not isinstance(value, Mapping):
            return None, None
        hint, value = _without_none(hints[name]), value.get(name)
    return hint, value


def _hints(kind: Any) -> dict[str, Any]:
    if not hasattr(kind, "__struct_fields__"):
        return {}
    return get_type_hints(kind, include_extras=True)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) is Union:
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
