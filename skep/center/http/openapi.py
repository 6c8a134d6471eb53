"""The OpenAPI document, generated from the table of endpoints. Pure.

It is generated once per center, and by the tests. It never describes anything that is not in
the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import msgspec.inspect

from skep import __version__
from skep.center.http import openapi_examples as examples
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Endpoint
from skep.center.http.openapi_field_comments import field_comments
from skep.center.http.openapi_field_texts import FIELD_TEXTS
from skep.center.http.openapi_operations import PATH_PARAMETERS, TAGS
from skep.errors import (
    Forbidden,
    HeadTooLarge,
    InvalidInput,
    Malformed,
    SkepError,
    TooLarge,
    TooManyConnections,
    TooManyTries,
    TooSlow,
    Unauthorized,
    Unavailable,
    UrlTooLong,
)
from skep.model.message_bounds import EXACT
from skep.wire.api.route import Route
from skep.wire.problem import PROBLEM, Problem

REF = "#/components/schemas/{name}"
#: The limits of a connection: any call may end with one of these errors.
_BOUNDS = (Malformed, HeadTooLarge, UrlTooLong, TooSlow, TooManyConnections)
_NODES = (msgspec.inspect.Type, msgspec.inspect.Field)
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_BYTES = {"type": "string", "format": "binary"}
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def describe(table: Sequence[Endpoint], public_url: str = "") -> dict[str, Any]:
    """The whole document; behind a proxy it names the URL below which the paths are."""
    kinds = [kind for row in table for kind in _kinds(row)]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template=REF)
    by_kind = dict(zip([repr(kind) for kind in [*kinds, Problem]], schemas, strict=True))
    _complete([schemas, components])
    _describe_fields([*kinds, Problem], components)
    known = _Known(by_kind, examples.Examples(components))
    paths: dict[str, Any] = {}
    for row in table:
        path = _PARAMETER.sub(r"{\1}", row.path)
        paths.setdefault(path, {})[row.method.lower()] = _operation(row, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Skep",
            "version": __version__,
            "description": "Every error is application/problem+json with a stable `code`.",
        },
        **({"servers": [{"url": public_url.rstrip("/")}]} if public_url else {}),
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


@dataclass(frozen=True, slots=True)
class _Known:
    """Schemas and examples of types, by their names in Python."""

    schemas: dict[str, dict[str, Any]]
    examples: examples.Examples

    def message(self, kind: Any) -> dict[str, Any]:
        """The content of an answer that is a message."""
        schema = self.schemas[repr(kind)]
        return {"application/json": {"schema": schema, "example": self.examples.of(schema)}}


def _kinds(row: Endpoint) -> list[Any]:
    return [kind for kind in (row.takes, row.gives, *row.others.values()) if kind is not None]


def _operation(row: Endpoint, known: _Known) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        "tags": [row.tag],
        "operationId": operation_id(row),
        "parameters": [*_path_parameters(row), *_query_parameters(row)],
        "responses": _responses(row, known),
    }
    if row.role is not Role.PUBLIC:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Needs role `{row.role}`. {row.notes}".strip()
    if row.takes is not None:
        operation["requestBody"] = {"required": True, "content": _body(row, known)}
    return operation


def _body(row: Endpoint, known: _Known) -> dict[str, Any]:
    schema = {**known.schemas[repr(row.takes)], **row.body_rules}
    return {"application/json": {"schema": schema, **_example(row.route.example)}}


def _example(value: Any) -> dict[str, Any]:
    return {} if value is None else {"example": value}


def operation_id(row: Endpoint) -> str:
    """Generated clients use it as the name of a method."""
    return row.route.id


def _describe_fields(kinds: Sequence[Any], components: dict[str, Any]) -> None:
    """Copy the comments of the classes into their schemas where a schema has no description."""
    for found in _structs(kinds):
        kind = found.cls
        schema = components.get(kind.__name__, components.get(f"{kind.__module__}.{kind.__name__}"))
        for part, field in zip(_parts(schema or {}, found), found.fields, strict=False):
            if text := field_text(kind, field.name):
                part.setdefault("description", text)


def field_text(kind: type, name: str) -> str:
    """The comment above the field, else the text in the table; "" = there is none."""
    own = field_comments(kind).get(name, "")
    return own or FIELD_TEXTS.get(f"{kind.__name__}.{name}") or FIELD_TEXTS.get(name, "")


def _parts(schema: dict[str, Any], found: msgspec.inspect.StructType) -> list[dict[str, Any]]:
    """The schemas of the fields, in their order; a struct may be an array on the wire."""
    if found.array_like:
        in_order: list[dict[str, Any]] = schema.get("prefixItems", [])
        return in_order[-len(found.fields) :]
    properties = schema.get("properties", {})
    return [properties.get(field.encode_name, {}) for field in found.fields]


def _structs(kinds: Sequence[Any]) -> Iterator[msgspec.inspect.StructType]:
    """Every struct that the types contain, once."""
    todo: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    seen: set[type] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls in seen:
                continue
            seen.add(node.cls)
            yield node
        for name in node.__struct_fields__:
            value = getattr(node, name)
            inside = value if isinstance(value, tuple) else (value,)
            todo += [one for one in inside if isinstance(one, _NODES)]


def _complete(part: Any) -> None:
    """Add what msgspec cannot express, to every schema inside."""
    if isinstance(part, dict):
        _complete_one(part)
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for item in part:
            _complete(item)


def _complete_one(part: dict[str, Any]) -> None:
    if part.get("items") is False and part.get("maxItems") == len(part.get("prefixItems", [])):
        del part["items"]  # `maxItems` means the same, and client generators fail on `items`
    if part.get("contentEncoding") == "base64":
        part["pattern"] = _BASE64
    part.update(part.pop(EXACT, {}))


def _path_parameters(row: Endpoint) -> list[dict[str, Any]]:
    return [_path_parameter(row, name) for name in _PARAMETER.findall(row.path)]


def _path_parameter(row: Endpoint, name: str) -> dict[str, Any]:
    schema = row.parameters.get(name, {"type": "string", "minLength": 1})
    text = schema.get("description") or PATH_PARAMETERS.get(name)
    return {
        "name": name,
        "in": "path",
        "required": True,
        **({"description": text} if text else {}),
        "schema": schema,
        "example": examples.of_path(name, schema),
    }


def _query_parameters(row: Endpoint) -> list[dict[str, Any]]:
    if row.asks is None:
        return []
    (_,), components = msgspec.json.schema_components([row.asks], ref_template=REF)
    _complete(components)
    schema = next(iter(components.values()))
    _describe_fields([row.asks], components)
    needed = schema.get("required", [])
    return [
        _query_parameter(row.route, name, name in needed, part)
        for name, part in schema.get("properties", {}).items()
    ]


def _query_parameter(
    route: Route[Any], name: str, required: bool, schema: dict[str, Any]
) -> dict[str, Any]:
    text = schema.get("description")
    return {
        "name": name,
        "in": "query",
        "required": required,
        **({"description": text} if text else {}),
        "schema": schema,
        "example": examples.of_query(route, name, schema),
    }


def _responses(row: Endpoint, known: _Known) -> dict[str, Any]:
    good: dict[str, Any] = {"description": row.summary}
    if row.gives is not None:
        good["content"] = known.message(row.gives)
    else:
        media = (row.media, *row.route.other_media)
        good["content"] = {kind: _raw(row, kind) for kind in media}
    answers: dict[str, Any] = {str(row.status): good}
    for status, kind in row.others.items():
        answers[str(status)] = {"description": "Not ready", "content": known.message(kind)}
    for error in _errors(row):
        answers.setdefault(str(error.status), _problem_answer(error, known))
    return answers


def _raw(row: Endpoint, media: str) -> dict[str, Any]:
    """An answer that is text, bytes or a document without a schema here."""
    schema: dict[str, Any] = {"type": "string"} if media.startswith("text/") else {**_BYTES}
    if media == "application/json":
        schema = {"type": "object"}
    return {"schema": schema, "example": row.route.answer_example}


def _errors(row: Endpoint) -> list[type[SkepError]]:
    errors: list[type[SkepError]] = [*row.errors, *_BOUNDS]
    if row.role is not Role.PUBLIC:
        errors += [Unauthorized, Forbidden, TooManyTries, Unavailable]
    if row.takes is not None:
        errors.append(TooLarge)
    if row.asks is not None:
        errors.append(InvalidInput)
    return errors


def _problem_answer(error: type[SkepError], known: _Known) -> dict[str, Any]:
    schema = known.schemas[repr(Problem)]
    content = {PROBLEM: {"schema": schema, "example": examples.of_error(error)}}
    return {"description": error.title, "content": content}
