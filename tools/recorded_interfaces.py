"""What callers use: routes, commands, settings, metrics, error codes. Read by `compatibility`.

Each function returns a nested dict that depends only on the code, never on the machine. Texts are
left out: summaries, descriptions and examples may change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import click
import msgspec
from msgspec import Meta
from prometheus_client.metrics import MetricWrapperBase

from skep import errors, settings
from skep.center.app import api_table
from skep.center.http.openapi import describe
from skep.center.metrics import Metrics
from skep.cli.main import skep
from skep.cli.terminal.exit_codes import MEANINGS, code_of

#: Class names appear in /openapi.json and in the records. After a rename: current name -> name in
#: the record. The names of schemas are not sent, so such a line is a reviewed rename.
RENAMED: dict[str, str] = {"FailureClass": "Failure"}

PROSE = {"description", "summary", "title", "example", "examples"}
#: Lists of a schema whose order has no meaning.
SETS = {"required", "enum"}
_REF = re.compile(r"#/components/schemas/(\w+)")


def recorded_name(name: str) -> str:
    return RENAMED.get(name, name)


def routes() -> dict[str, Any]:
    """Every operation of /openapi.json, with its role, parameters, bodies and answers."""
    document = _document()
    roles = {(row.method, _plain_path(row.path)): str(row.role) for row in api_table()}
    return {
        f"{method.upper()} {path}": {
            "role": roles[method.upper(), path],
            **_operation(operation),
        }
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


@cache
def _document() -> dict[str, Any]:
    return describe(api_table())


def _plain_path(path: str) -> str:
    return re.sub(r"{(\w+)(?::\w+)?}", r"{\1}", path)


def _operation(operation: dict[str, Any]) -> dict[str, Any]:
    parameters = operation["parameters"]
    body = operation.get("requestBody", {}).get("content", {})
    return {
        "operation": operation["operationId"],
        "tags": operation["tags"],
        "parameters": {
            f"{one['name']} ({one['in']}{', required' if one['required'] else ''})": _schema(
                one["schema"]
            )
            for one in parameters
        },
        "body": _content(body),
        "answers": {
            status: _content(answer.get("content", {}))
            for status, answer in operation["responses"].items()
        },
    }


def _content(content: dict[str, Any]) -> str:
    return ", ".join(f"{media} {_schema(part['schema'])}" for media, part in content.items())


def schemas() -> dict[str, Any]:
    """Every schema of /openapi.json: its fields, one line each."""
    components = _document()["components"]["schemas"]
    return {recorded_name(name): _component(schema) for name, schema in components.items()}


def _component(schema: dict[str, Any]) -> dict[str, str]:
    needed = schema.get("required", [])
    shape = {key: part for key, part in schema.items() if key not in {"properties", "required"}}
    fields = {
        name: _schema(part) + (" required" if name in needed else "")
        for name, part in schema.get("properties", {}).items()
    }
    return {"shape": _schema(shape), **{f".{name}": text for name, text in fields.items()}}


def _schema(schema: dict[str, Any]) -> str:
    plain = _without_prose(schema)
    if list(plain) == ["$ref"]:
        return recorded_name(_REF.sub(r"\1", plain["$ref"]))
    text = json.dumps(plain, sort_keys=True)
    return _REF.sub(lambda found: recorded_name(found[1]), text)


def _without_prose(part: Any) -> Any:
    if isinstance(part, dict):
        # In `properties` the keys are names of fields, and a field may be called `title`.
        return {
            key: {name: _without_prose(one) for name, one in value.items()}
            if key == "properties"
            else sorted(value, key=str)
            if key in SETS
            else _without_prose(value)
            for key, value in part.items()
            if key not in PROSE
        }
    return [_without_prose(one) for one in part] if isinstance(part, list) else part


def commands() -> dict[str, Any]:
    """Every command with its arguments and options; an alias has its own line."""
    return dict(_commands(skep, click.Context(skep, info_name="skep")))


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, Any]]:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option)]
    yield (
        context.command_path,
        {
            "arguments": {
                f"{number} {one.name}": f"{_type(one)}, nargs {one.nargs}, "
                + ("required" if one.required else f"default {_default(one.default)}")
                for number, one in enumerate(arguments, 1)
            },
            "options": {
                name: _option(one, name)
                for one in options
                for name in (*one.opts, *one.secondary_opts)
            },
        },
    )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if below := command.get_command(context, name):
                yield from _commands(below, click.Context(below, context, name))


def _option(option: click.Option, name: str) -> str:
    if option.is_flag or option.count:
        value = "flag, off" if name in option.secondary_opts else "flag"
    else:
        value = f"takes {_type(option)}" + (f" x {option.nargs}" if option.nargs != 1 else "")
    parts = [value, f"default {_default(option.default)}"]
    parts += ["repeatable"] if option.multiple else []
    parts += ["required"] if option.required else []
    parts += [f"variable {option.envvar}"] if option.envvar else []
    return ", ".join(parts)


def _type(parameter: click.Parameter) -> str:
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return f"one of {'/'.join(map(_default, kind.choices))}"
    bounds = [getattr(kind, name, None) for name in ("min", "max")]
    return kind.name + (f" {bounds[0]}..{bounds[1]}" if bounds != [None, None] else "")


def _default(value: object) -> str:
    """As text; click has its own marker for "no default"."""
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, Enum):
        return str(value.value) if not str(value).startswith("Sentinel") else "none"
    if callable(value):
        return "computed"
    return "none" if value is None else str(value)


def all_settings() -> dict[str, Any]:
    """Every setting: type with bounds, default, environment variable."""
    found = {"data": _setting(settings.Settings, "data", settings.Settings().data, "DATA")}
    for room, field, default, _ in settings.documented():
        struct = type(getattr(settings.Settings(), room))
        found[f"{room}.{field}"] = _setting(struct, field, default, f"{room}_{field}".upper())
    return found


def _setting(struct: type, field: str, default: object, variable: str) -> dict[str, str]:
    hint = get_type_hints(struct, include_extras=True)[field]
    return {
        "type": _hint(hint),
        "default": json.dumps(msgspec.to_builtins(default)),
        "environment": f"{settings.PREFIX}_{variable}",
    }


def _hint(hint: Any) -> str:
    """`int ge=0 le=9`, without the description."""
    metas = [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Meta)]
    plain = hint.__origin__ if metas else hint
    name = plain.__name__ if type(plain) is type else str(plain).replace("typing.", "")
    bounds = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
    rules = [
        f"{rule}={value}"
        for meta in metas
        for rule in bounds
        if (value := getattr(meta, rule)) is not None
    ]
    return " ".join([name, *rules])


def metrics() -> dict[str, Any]:
    """The metrics of /metrics: type, labels, buckets."""
    found: dict[str, Any] = {}
    for collector in list(Metrics().registry._collector_to_names):  # noqa: SLF001 - no other way
        if not isinstance(collector, MetricWrapperBase):
            raise TypeError(f"{collector} shows no type and no labels")
        family = next(iter(collector.describe()))
        found[family.name] = {
            "type": family.type,
            "labels": ",".join(collector._labelnames),  # noqa: SLF001
            "buckets": str(collector._kwargs.get("buckets", "")),  # noqa: SLF001
        }
    return found


def error_codes() -> dict[str, Any]:
    """Every error by its code: HTTP status, whether to retry, exit code of a command."""
    return {
        "errors": {
            error.code: {
                "status": error.status,
                "retryable": error.retryable,
                "exit": int(code_of(error("-"))),
            }
            for error in _tree(errors.SkepError)
            if error.__module__ == errors.__name__
        },
        "exit codes": {str(int(code)): "" for code in MEANINGS},
    }


def _tree(error: type[errors.SkepError]) -> Iterator[type[errors.SkepError]]:
    yield error
    for child in error.__subclasses__():
        yield from _tree(child)
