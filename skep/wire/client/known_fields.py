"""Answers of a newer center: fields that this version does not know are left out. Pure.

Structs that callers submit forbid unknown fields, so that a misspelt one is an error, and some of
them come back in answers (`Job`, `Schedule`). Only the client reads leniently: what a center
accepts is not changed by this.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import inspect

from skep.errors import Malformed
from skep.wire import codec

T = TypeVar("T")


def decode_answer(content: bytes, kind: type[T], content_type: str) -> T:
    """The answer as `kind`, whatever else it holds. Raises Malformed as `codec.decode` does."""
    try:
        return codec.decode(content, kind, content_type)
    except Malformed:
        found = codec.decode(content, Any, content_type)
        # A content type may have parameters, which `encode` does not know.
        plain = content_type.partition(";")[0].strip().lower()
        data = codec.encode(known_fields(found, inspect.type_info(kind)), plain)
        return codec.decode(data, kind, plain)


def known_fields(value: Any, kind: inspect.Type) -> Any:  # noqa: PLR0911 - one per sort of type
    """The value without the fields that the structs in `kind` do not have. What does not fit
    `kind` stays as it is."""
    if isinstance(kind, inspect.Metadata):
        return known_fields(value, kind.type)
    if isinstance(kind, inspect.UnionType):
        return known_fields(value, _member(value, kind))
    if isinstance(kind, inspect.StructType):
        return _of_struct(value, kind)
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {name: known_fields(one, kind.value_type) for name, one in value.items()}
    if isinstance(kind, inspect.TupleType) and isinstance(value, list):
        pairs = zip(value, kind.item_types, strict=False)
        return [known_fields(one, part) for one, part in pairs]
    if isinstance(kind, inspect.CollectionType) and isinstance(value, list):
        return [known_fields(one, kind.item_type) for one in value]
    return value


def _of_struct(value: Any, kind: inspect.StructType) -> Any:
    if kind.array_like and isinstance(value, list):
        pairs = zip(value, kind.fields, strict=False)
        return [known_fields(one, field.type) for one, field in pairs]
    if not isinstance(value, dict):
        return value
    types = {field.encode_name: field.type for field in kind.fields}
    return {
        name: known_fields(one, types[name]) if name in types else one
        for name, one in value.items()
        if name in types or name == kind.tag_field
    }


def _member(value: Any, kind: inspect.UnionType) -> inspect.Type:
    """The member that the value belongs to; a struct by its tag, where it has one."""
    members = [one.type if isinstance(one, inspect.Metadata) else one for one in kind.types]
    structs = [one for one in members if isinstance(one, inspect.StructType)]
    if isinstance(value, dict) and structs:
        return next((one for one in structs if value.get(one.tag_field) == one.tag), structs[0])
    wanted = (
        inspect.DictType
        if isinstance(value, dict)
        else (inspect.CollectionType, inspect.TupleType, inspect.StructType)
    )
    return next((one for one in members if isinstance(one, wanted)), inspect.AnyType())
