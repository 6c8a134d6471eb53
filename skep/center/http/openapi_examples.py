"""Examples of every operation, for the API's description. Pure.

An answer is generated from its schema, so it is complete and valid; a test validates all of
them. It never shows data of a center.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from skep.center.http.openapi_example_data import FIELDS, PATHS
from skep.errors import SkepError
from skep.wire.api.route import Route
from skep.wire.problem import problem_of

Schema = dict[str, Any]
_REF = "#/components/schemas/"
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_PLAIN: dict[str, Any] = {"string": "", "number": 0.0, "boolean": False, "object": {}}


def of_path(name: str, schema: Schema) -> Any:
    """A value of a path parameter."""
    return schema["enum"][0] if "enum" in schema else PATHS.get(name, "example")


def of_query(route: Route[Any], name: str, schema: Schema) -> Any:
    """A value of a query parameter: the one beside the route, else its default."""
    if (found := route.query_example.get(name)) is not None:
        return found
    if (default := schema.get("default")) is not None:
        return default
    without = {key: value for key, value in schema.items() if key != "default"}
    return Examples({}).of(without, name)


def of_error(error: type[SkepError]) -> dict[str, Any]:
    """A problem as the center sends it."""
    found: dict[str, Any] = msgspec.to_builtins(problem_of(error(error.title)))
    return found


class Examples:
    """Generates values that match schemas; `components` are the schemas that references name."""

    def __init__(self, components: dict[str, Schema]) -> None:
        self._components = components

    def of(self, schema: Schema, name: str = "", owner: str = "") -> Any:
        """A value for the field `name` of the type `owner`."""
        if (written := FIELDS.get(f"{owner}.{name}")) is not None:
            return written
        if "$ref" in schema:
            return self._of_type(schema["$ref"].removeprefix(_REF), name)
        if "anyOf" in schema:
            return self._any_of(schema, name)
        if name in FIELDS and _fits(FIELDS[name], schema):
            return FIELDS[name]
        return schema.get("default") or self._made(schema, name, owner)

    def _of_type(self, kind: str, name: str) -> Any:
        schema = self._components[kind]
        if "properties" in schema or "prefixItems" in schema:
            return self._made(schema, name, kind)
        return self.of(schema, name)

    def _any_of(self, schema: Schema, name: str) -> Any:
        """The default; without one, the first alternative that is not null."""
        if "default" in schema and name not in FIELDS:
            return schema["default"]
        kinds = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return self.of(kinds[0], name)

    def _made(self, schema: Schema, name: str, owner: str) -> Any:
        kind = schema.get("type")
        if "enum" in schema:
            return schema["enum"][0]
        if kind == "object" and "properties" in schema:
            parts = schema["properties"].items()
            return {field: self.of(part, field, owner) for field, part in parts}
        if kind == "array":
            return self._array(schema, name)
        if kind in {"integer", "number"}:
            return max(schema.get("minimum", 0), 0)
        return _PLAIN.get(str(kind), {})

    def _array(self, schema: Schema, name: str) -> list[Any]:
        if "prefixItems" in schema:
            return [self.of(part) for part in schema["prefixItems"]]
        if "default" in schema or not schema.get("items"):
            return []
        return [self.of(schema["items"], name.removesuffix("s"))]


def _fits(value: Any, schema: Schema) -> bool:
    """Whether a value of the table matches the schema; checks what such a value can violate."""
    kinds = _KINDS.get(str(schema.get("type")), ())
    if "enum" in schema:
        return value in schema["enum"]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return False
    return not isinstance(value, str) or bool(re.search(schema.get("pattern", ""), value))
