"""Masks whole answers and documents: structs, dicts and lists of any depth. Pure.

A field is masked by its name, a text by its content. `rules` replaces the masking of structs
of a given type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from skep.runtime.masking import (
    MASK,
    is_pair_value,
    is_secret_name,
    mask_headers,
    mask_login,
    mask_options,
    mask_text,
    mask_values,
    names_secret,
)

Rule = Callable[[Any], Any]


def _all(value: Any) -> Any:
    return MASK if value else value


def _bytes(value: Any) -> Any:
    return MASK.encode() if isinstance(value, bytes) and value else _all(value)


def _options(value: Any) -> Any:
    """A key of a caller may have the same name and hold anything."""
    return mask_options(value) if isinstance(value, list | tuple) else _all(value)


#: Fields and keys with these names, at any depth.
FIELDS: dict[str, Rule] = {
    "headers": mask_headers,
    "cookie": _all,
    "proxy": mask_login,
    "proxies": mask_login,
    "curl": _options,
    "arguments": mask_values,
    "environment": mask_values,
    "body": _bytes,
}

#: Struct fields whose keys are chosen by callers.
_CHOSEN = frozenset({"arguments", "data", "environment", "facts", "meta", "options", "settings"})


def masked(value: Any, rules: Mapping[type, Rule] | None = None) -> Any:
    """`value` without credentials; a value that holds none is returned as it is."""
    return _masked(value, rules or {})


def _masked(value: Any, rules: Mapping[type, Rule]) -> Any:
    if isinstance(value, str):
        # A member of an enum is defined in Skep's code and holds no secret.
        return mask_text(value) if type(value) is str else value
    if isinstance(value, msgspec.Struct):
        rule = rules.get(type(value))
        return rule(value) if rule else _struct(value, rules)
    if isinstance(value, dict):
        return _mapping(value, rules)
    if isinstance(value, list | tuple):
        return _sequence(value, rules)
    return value


def _mapping(value: dict[Any, Any], rules: Mapping[type, Rule]) -> dict[Any, Any]:
    secret = names_secret(value)
    shown = {}
    for name, inner in value.items():
        hide = secret and isinstance(name, str) and is_pair_value(name)
        after = mask_values(inner) if hide else _item(name, inner, rules)
        shown[mask_text(name) if type(name) is str else name] = after
    return shown


def _struct(value: msgspec.Struct, rules: Mapping[type, Rule]) -> msgspec.Struct:
    changed = {}
    for name in value.__struct_fields__:
        before = getattr(value, name)
        after = before if _is_counts(name, before) else _field(name, before, rules)
        if after is not before and after != before:
            changed[name] = after
    return msgspec.structs.replace(value, **changed) if changed else value


def _is_counts(name: str, value: Any) -> bool:
    """Numbers keyed by a job, an agent or a status, whatever the names are."""
    counts = isinstance(value, dict) and name not in _CHOSEN
    return counts and all(isinstance(inner, int | float) for inner in value.values())


def _sequence(value: list[Any] | tuple[Any, ...], rules: Mapping[type, Rule]) -> Any:
    if names_secret(value):
        return type(value)([value[0], mask_values(value[1])])
    return type(value)([_masked(inner, rules) for inner in value])


def _field(name: str, value: Any, rules: Mapping[type, Rule]) -> Any:
    rule = FIELDS.get(name)
    if rule is not None and value:
        after = rule(value)
        return tuple(after) if isinstance(value, tuple) else after
    return _masked(value, rules)


def _item(name: Any, value: Any, rules: Mapping[type, Rule]) -> Any:
    """A value of a dict whose keys are chosen by callers."""
    if not isinstance(name, str):
        return _masked(value, rules)
    if name.lower() in FIELDS:
        return _field(name.lower(), value, rules)
    return mask_values(value) if is_secret_name(name) else _masked(value, rules)
