"""A form from typed options: fields from a JSON schema of the API's description. Pure.

The schema decides names, types, bounds, choices, defaults and help, so a new option of the API is
a new field of the form without a change here. The API checks what is sent; the form only helps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from skep.errors import InvalidInput

T = TypeVar("T")
_REF = "#/components/schemas/"
#: Types of JSON -> sorts of fields; everything else is written as JSON.
_SORTS = {"string": "text", "integer": "integer", "number": "number", "boolean": "switch"}
#: Texts that may be longer are written in several lines.
_ONE_LINE = 500


@dataclass(frozen=True, slots=True)
class FormField:
    """One option. `sort` is text, lines, integer, number, switch, choice or json."""

    name: str
    sort: str
    value: str = ""
    help: str = ""
    required: bool = False
    choices: Sequence[str] = ()
    least: float | None = None
    most: float | None = None
    longest: int | None = None
    #: What the option is when nothing is written.
    default: str = ""
    #: Why the value was refused; "" = it was not.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of one type, in its order."""

    fields: Sequence[FormField]

    @classmethod
    def of(
        cls,
        document: Mapping[str, Any],
        schema: str,
        values: Mapping[str, Any] | None = None,
        only: Sequence[str] = (),
    ) -> Form:
        """The options of a type in the API's description, with present values. `only` chooses
        fields and their order."""
        known = document["components"]["schemas"]
        found = known[schema]
        required = found.get("required", [])
        names = only or list(found["properties"])
        present = values or {}
        return cls(
            [
                _field(name, found["properties"][name], known, present, name in required)
                for name in names
            ]
        )

    def read(self, given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The values of a submitted form. An empty field is left out. Raises InvalidInput."""
        found: dict[str, Any] = {}
        for one in self.fields:
            texts = given.get(one.name, [])
            if one.sort == "switch":
                found[one.name] = bool(texts)
            elif texts and texts[0].strip():
                found[one.name] = _read(one, texts[0])
        return found


def _field(
    name: str,
    schema: Mapping[str, Any],
    known: Mapping[str, Any],
    values: Mapping[str, Any],
    required: bool,
) -> FormField:
    part = _resolved(schema, known)
    sort = _sort(part)
    default = schema.get("default", part.get("default"))
    return FormField(
        name,
        sort,
        _written(sort, values.get(name, default if sort == "switch" else None)),
        schema.get("description", part.get("description", "")),
        required,
        [str(one) for one in part.get("enum", ())],
        part.get("minimum", part.get("exclusiveMinimum")),
        part.get("maximum", part.get("exclusiveMaximum")),
        part.get("maxLength"),
        _written(sort, default),
    )


def _resolved(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference, and the type of an option that may also be null."""
    if "$ref" in schema:
        return _resolved(known[schema["$ref"].removeprefix(_REF)], known)
    parts = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return _resolved(parts[0], known) if len(parts) == 1 else schema


def _sort(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        return "choice"
    sort = _SORTS.get(str(part.get("type", "")), "json")
    long = sort == "text" and part.get("maxLength", 0) > _ONE_LINE
    return "lines" if long else sort


def _written(sort: str, value: Any) -> str:
    if value is None:
        return ""
    if sort == "json":
        return json.dumps(value, ensure_ascii=False) if value not in ({}, [], "") else ""
    if isinstance(value, bool):
        return "yes" if value else ""
    return str(value)


def _read(one: FormField, text: str) -> Any:
    try:
        if one.sort == "integer":
            return int(text.strip())
        if one.sort == "number":
            return float(text.strip())
        if one.sort == "json":
            return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{one.name}: {text[:100]!r} is not a valid {one.sort}") from error
    return text


def typed(values: Mapping[str, Any], kind: type[T]) -> T:
    """The values as a type of the API. Raises InvalidInput."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from error
