"""Records the fields of every message between centers and agents in tests/contracts/wire.json.

`python tools/wire.py write` adds what is new. It refuses to remove or change a field, because a
center must understand agents of the previous version, and they the center. A field that no release
has used may change: remove it from the file first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from skep.wire import messages

FILE = Path(__file__).parent.parent / "tests" / "contracts" / "wire.json"
#: Attributes of msgspec's descriptions with the types inside a type.
ONE = ("item_type", "key_type", "value_type", "type")
MANY = ("types", "item_types")
REQUIRED = ", required"

Shape = dict[str, Any]


def wire_structs() -> dict[str, Shape]:
    """Every struct of the wire by its name, with its fields in order."""
    found: dict[str, Shape] = {}
    for kind in vars(messages).values():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            for struct in _structs(inspect.type_info(kind), set()):
                found[struct.cls.__name__] = _shape(struct)
    return dict(sorted(found.items()))


def _structs(kind: inspect.Type, seen: set[type]) -> Iterator[inspect.StructType]:
    if isinstance(kind, inspect.StructType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        yield kind
        inner: list[inspect.Type] = [field.type for field in kind.fields]
    else:
        inner = [getattr(kind, name) for name in ONE if hasattr(kind, name)]
        inner += [one for name in MANY for one in getattr(kind, name, ())]
    for one in inner:
        yield from _structs(one, seen)


def _shape(struct: inspect.StructType) -> Shape:
    config = struct.cls.__struct_config__
    return {
        "form": "array" if struct.array_like else "map",
        # A closed struct refuses unknown fields.
        "closed": struct.forbid_unknown_fields and not config.omit_defaults,
        "fields": {field.encode_name: _field(field) for field in struct.fields},
    }


def _field(field: inspect.Field) -> str:
    return _word(field.type) + (REQUIRED if field.required else "")


def _word(kind: inspect.Type) -> str:
    """A type without its limits: those may change, because both sides check their own."""
    if isinstance(kind, inspect.Metadata):  # only for the API's description, not on the wire
        # Agents get a list of names, whatever else a center accepts (`told_to_agents`).
        return "literal" if "enum" in (kind.extra_json_schema or {}) else _word(kind.type)
    if isinstance(kind, inspect.StructType):
        return kind.cls.__name__
    if isinstance(kind, inspect.EnumType):
        return f"enum {kind.cls.__name__}"
    name = type(kind).__name__.removesuffix("Type").lower()
    inner = [_word(getattr(kind, part)) for part in ONE if hasattr(kind, part)]
    inner += [_word(one) for part in MANY for one in getattr(kind, part, ())]
    if isinstance(kind, inspect.LiteralType):
        inner = []
    return f"{name}[{', '.join(inner)}]" if inner else name


def broken(before: dict[str, Shape], now: dict[str, Shape]) -> list[str]:
    """What an older version would not understand, each with what to do."""
    return [
        complaint
        for name, old in before.items()
        for complaint in (
            _changes(name, old, now[name])
            if name in now
            else [f"{name} is missing: keep it until no agent of the previous version runs"]
        )
    ]


def _changes(name: str, old: Shape, new: Shape) -> Iterator[str]:
    before, after = old["fields"], new["fields"]
    if old["form"] != new["form"]:
        yield f"{name} was a {old['form']} and must stay one"
    for field, was in before.items():
        if field not in after:
            yield f"{name}.{field} is missing: keep it, and document since when it is unused"
        elif after[field].removesuffix(REQUIRED) != was.removesuffix(REQUIRED):
            yield f"{name}.{field} was {was}: add a field of another name instead"
        elif after[field].endswith(REQUIRED) and not was.endswith(REQUIRED):
            yield f"{name}.{field} had a default: give it one again"
    added = [field for field in after if field not in before]
    for field in added:
        if after[field].endswith(REQUIRED):
            yield f"{name}.{field} is new and needs a default: older versions do not send it"
    if added and old["closed"] and new["closed"]:
        yield f"{name} refuses unknown fields: give it omit_defaults=True, too"
    if new["form"] == "array" and list(after)[: len(before)] != list(before):
        yield f"{name} is an array: new fields go to its end"


def main(words: list[str]) -> int:
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    now = wire_structs()
    if wrong := broken(kept, now):
        sys.stderr.write("\n".join(wrong) + "\n")
        return 1
    if words == ["write"]:
        FILE.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    return 0 if kept == now else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
