"""The API's description as one HTML page, for people. Pure.

It is generated from the OpenAPI document alone and uses no scripts and no files of other
servers, so it works in a closed network. The content policy allows its one style by hash.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from typing import Any

MEDIA = "text/html; charset=utf-8"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;vertical-align:top;padding:.2rem .6rem;border-bottom:1px solid #ccc}"
    "h3{margin-top:2.5rem}code{overflow-wrap:anywhere}pre{overflow-x:auto;background:#f4f4f4}"
)
_HASH = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: Replaces the policy of other answers.
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'"
_REF = "#/components/schemas/"


def render(document: dict[str, Any]) -> bytes:
    """The whole page: operations by tag, then the types that they use."""
    title = escape(f"{document['info']['title']} {document['info']['version']} API")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{escape(document['info']['description'])} ",
        'The same as <a href="openapi.json">OpenAPI document</a>.</p>',
        *_contents(document),
        *(part for tag in document["tags"] for part in _tag(document, tag)),
        '<h2 id="types">Types</h2>',
        *(_type(*pair) for pair in sorted(document["components"]["schemas"].items())),
        "</body></html>",
    ]
    return "\n".join(parts).encode()


def _contents(document: dict[str, Any]) -> Iterator[str]:
    yield "<ul>"
    for tag in document["tags"]:
        name = escape(tag["name"])
        yield f'<li><a href="#tag-{name}">{name}</a>: {escape(tag["description"])}</li>'
    yield '<li><a href="#types">types</a></li></ul>'


def _tag(document: dict[str, Any], tag: dict[str, str]) -> Iterator[str]:
    name = escape(tag["name"])
    yield f'<h2 id="tag-{name}">{name}</h2><p>{escape(tag["description"])}</p>'
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            if tag["name"] in operation["tags"]:
                yield from _operation(f"{verb.upper()} {path}", operation)


def _operation(called: str, operation: dict[str, Any]) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f'<h3 id="{name}">{escape(operation["summary"])}</h3>'
    yield f"<p><code>{escape(called)}</code> ({name})</p>"
    if "description" in operation:
        yield f"<p>{escape(operation['description'])}</p>"
    if operation["parameters"]:
        yield _table("Parameter", [_parameter(one) for one in operation["parameters"]])
    if "requestBody" in operation:
        yield f"<p>Body: {_content(operation['requestBody'])}</p>"
        yield _example("Example of a body", operation["requestBody"])
    yield "<table><tr><th>Status</th><th>Answer</th><th>Description</th></tr>"
    for status, answer in operation["responses"].items():
        text = escape(answer["description"])
        yield f"<tr><td>{escape(status)}</td><td>{_content(answer)}</td><td>{text}</td></tr>"
    yield "</table>"
    yield _example("Example of an answer", next(iter(operation["responses"].values())))


def _example(title: str, part: dict[str, Any]) -> str:
    """The example of the first content; collapsed, because answers are long."""
    for content in part.get("content", {}).values():
        if "example" in content:
            text = escape(json.dumps(content["example"], indent=2, ensure_ascii=False))
            return f"<details><summary>{title}</summary><pre>{text}</pre></details>"
    return ""


def _parameter(one: dict[str, Any]) -> tuple[str, dict[str, Any], bool, str]:
    return one["name"], one["schema"], one["required"], one.get("description", "")


def _content(part: dict[str, Any]) -> str:
    return ", ".join(
        f"{_kind(content['schema'])}" if "schema" in content else f"<code>{escape(media)}</code>"
        for media, content in part.get("content", {}).items()
    )


def _type(name: str, schema: dict[str, Any]) -> str:
    text = escape(schema.get("description", ""))
    head = f'<h3 id="type-{escape(name)}">{escape(name)}</h3><p>{text}</p>'
    needed = schema.get("required", [])
    rows = [
        (field, part, field in needed, part.get("description", ""))
        for field, part in schema.get("properties", {}).items()
    ]
    return head + (_table("Field", rows) if rows else f"<p>{_kind(schema)}</p>")


def _table(what: str, rows: list[tuple[str, dict[str, Any], bool, str]]) -> str:
    lines = [
        f"<tr><td><code>{escape(name)}</code></td><td>{_kind(schema)}</td>"
        f"<td>{'required' if needed else _default(schema)}</td><td>{escape(text)}</td></tr>"
        for name, schema, needed, text in rows
    ]
    head = f"<tr><th>{what}</th><th>Type</th><th>Default</th><th>Description</th></tr>"
    return f"<table>{head}{''.join(lines)}</table>"


def _default(schema: dict[str, Any]) -> str:
    return f"<code>{escape(repr(schema['default']))}</code>" if "default" in schema else ""


def _kind(schema: dict[str, Any]) -> str:
    """The type in a few words; types with names are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REF))
        return f'<a href="#type-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if "prefixItems" in schema:
        return f"array of ({', '.join(_kind(one) for one in schema['prefixItems'])})"
    if "items" in schema:
        return f"array of {_kind(schema['items'])}"
    return escape(str(schema.get("type", "any")))
