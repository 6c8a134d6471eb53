"""Messages without default values. Pure.

A newer client can then call an older center, which refuses unknown fields: a field is sent only
when the caller gave it a value.
"""

from __future__ import annotations

from typing import Any

import msgspec


def set_fields(message: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, by their names on the wire."""
    found = {}
    for field in msgspec.structs.fields(type(message)):
        value = getattr(message, field.name)
        if not _is_default(field, value):
            found[field.encode_name] = sparse(value)
    return found


def sparse(value: Any) -> Any:
    """The same value with every message in it reduced to its set fields."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        whole = config.array_like or config.omit_defaults or config.tag is not None
        return value if whole else set_fields(value)
    if isinstance(value, dict):
        return {name: sparse(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [sparse(one) for one in value]
    return value


def _is_default(field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return field.default is not msgspec.NODEFAULT and bool(value == field.default)
