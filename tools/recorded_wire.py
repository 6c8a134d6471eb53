"""One encoded example of every message between centers and agents. Read by `compatibility`.

A value depends only on the name and the type of its field, so a new field changes no other.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import msgspec
from msgspec import inspect

from skep.wire import messages
from skep.wire.codec import JSON, decode, encode
from tools.recorded_interfaces import recorded_name

Example = dict[str, Any]


def kinds() -> dict[str, type[msgspec.Struct]]:
    """Every message by its recorded name."""
    found = (
        kind
        for kind in vars(messages).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    )
    return {recorded_name(kind.__name__): kind for kind in found}


def examples() -> dict[str, Example]:
    """Name: the message in msgpack, as hexadecimal digits, and in JSON."""
    return {name: encoded(example(kind)) for name, kind in kinds().items()}


def encoded(message: msgspec.Struct) -> Example:
    return {
        "json": msgspec.json.decode(encode(message, JSON)),
        "msgpack": encode(message).hex(),
    }


def misread(name: str, recorded: Example) -> str:
    """Why the recorded bytes have another meaning now; "" if they have not."""
    kind = kinds()[name]
    packed = bytes.fromhex(recorded["msgpack"])
    try:
        from_msgpack = decode(packed, kind)
        from_json = decode(msgspec.json.encode(recorded["json"]), kind, JSON)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{name}: the recorded bytes cannot be read: {error}"
    if from_msgpack != from_json:
        return f"{name}: the recorded msgpack and JSON are different messages now"
    again = msgspec.msgpack.decode(encode(from_msgpack), strict=False)
    if not _holds(again, msgspec.msgpack.decode(packed, strict=False)):
        return f"{name}: the recorded bytes come back changed: {again!r}"
    return ""


def _holds(now: Any, before: Any) -> bool:
    """Whether everything of before is present with the same value; new fields are allowed."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(key in now and _holds(now[key], part) for key, part in before.items())
    if isinstance(before, list) and isinstance(now, list):
        return len(now) >= len(before) and all(map(_holds, now, before))
    return bool(now == before)


def example(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """A message with every field set, including optional ones."""
    message: msgspec.Struct = _value(inspect.type_info(kind), kind.__name__)
    return message


@singledispatch
def _value(kind: inspect.Type, name: str, default: object = None) -> Any:
    raise TypeError(f"{name}: no example for {kind} with default {default!r}")


@_value.register
def _(kind: inspect.Metadata, name: str, default: object = None) -> Any:
    named = (kind.extra_json_schema or {}).get("enum")
    return named[0] if named else _value(kind.type, name, default)


@_value.register
def _(kind: inspect.StructType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return kind.cls(**{one.name: _value(one.type, one.name, one.default) for one in kind.fields})


@_value.register
def _(kind: inspect.UnionType, name: str, default: object = None) -> Any:
    some = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    return _value(some, name, default)


@_value.register
def _(kind: inspect.EnumType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return next(iter(kind.cls))


@_value.register
def _(kind: inspect.LiteralType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return kind.values[0]


@_value.register
def _(kind: inspect.BoolType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return default is not True


@_value.register
def _(kind: inspect.ListType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return [_value(kind.item_type, name)]


@_value.register
def _(kind: inspect.VarTupleType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return (_value(kind.item_type, name),)


@_value.register
def _(kind: inspect.TupleType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return tuple(_value(one, name) for one in kind.item_types)


@_value.register
def _(kind: inspect.DictType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return {_value(kind.key_type, name): _value(kind.value_type, name)}


@_value.register
def _(kind: inspect.IntType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return _within(_number(name), kind.ge, kind.le)


@_value.register
def _(kind: inspect.FloatType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return _within(_number(name) + 0.5, kind.ge, kind.le)


@_value.register
def _(kind: inspect.BytesType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return name.encode().ljust(kind.min_length or 0, b".")[: kind.max_length]


@_value.register
def _(kind: inspect.StrType, name: str, default: object = None) -> Any:  # noqa: ARG001
    return name[: kind.max_length]


def _number(name: str) -> int:
    return sum(name.encode()) % 89 + 7


def _within(number: float, low: float | None, high: float | None) -> float:
    number = number if low is None else max(number, low)
    return number if high is None else min(number, high)
