"""Whole answers and documents, masked: structs, dicts and lists of any depth. Pure.

A field is masked by its name, every text by what it says. `rules` masks whole structs of a
type otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from skep.runtime.masking import (
    MASK,
    is_secret_name,
    mask_headers,
    mask_login,
    mask_options,
    mask_text,
    mask_values,
)

Rule = Callable[[Any], Any]


def _all(value: Any) -> Any:
    return MASK if value else value


def _bytes(value: Any) -> Any:
    return MASK.encode() if isinstance(value, bytes) and value else _all(value)


#: Fields and keys of these names, wherever they stand.
FIELDS: dict[str, Rule] = {
    "headers": mask_headers,
    "cookie": _all,
    "proxy": mask_login,
    "proxies": mask_login,
    "curl": mask_options,
    "arguments": mask_values,
    "environment": mask_values,
    "body": _bytes,
}


def masked(value: Any, rules: Mapping[type, Rule] | None = None) -> Any:
    """The same without credentials; what holds none is given back as it is."""
    return _masked(value, rules or {})


def _masked(value: Any, rules: Mapping[type, Rule]) -> Any:
    if isinstance(value, str):
        # An enum's member is one of our own words.
        return mask_text(value) if type(value) is str else value
    if isinstance(value, msgspec.Struct):
        rule = rules.get(type(value))
        return rule(value) if rule else _struct(value, rules)
    if isinstance(value, dict):
        return {name: _item(name, inner, rules) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return _sequence(value, rules)
    return value


def _struct(value: msgspec.Struct, rules: Mapping[type, Rule]) -> msgspec.Struct:
    changed = {}
    for name in value.__struct_fields__:
        before = getattr(value, name)
        after = _field(name, before, rules)
        if after is not before and after != before:
            changed[name] = after
    return msgspec.structs.replace(value, **changed) if changed else value


def _sequence(value: list[Any] | tuple[Any, ...], rules: Mapping[type, Rule]) -> Any:
    return type(value)([_masked(inner, rules) for inner in value])


def _field(name: str, value: Any, rules: Mapping[type, Rule]) -> Any:
    rule = FIELDS.get(name)
    if rule is not None and value:
        after = rule(value)
        return tuple(after) if isinstance(value, tuple) else after
    return _masked(value, rules)


def _item(name: Any, value: Any, rules: Mapping[type, Rule]) -> Any:
    """Of a dict, whose keys callers choose."""
    if isinstance(name, str) and name not in FIELDS and is_secret_name(name):
        return MASK if isinstance(value, str) and value else _masked(value, rules)
    return _field(name, value, rules) if isinstance(name, str) else _masked(value, rules)
