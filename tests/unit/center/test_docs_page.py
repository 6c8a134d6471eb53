"""The API's description as a page: whole, escaped, without scripts. Pure."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from typing import Any

import msgspec

from skep.center.app import api_table
from skep.center.http.docs_page import POLICY, render
from skep.center.http.openapi import describe

DOCUMENT: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(describe(api_table())))
PAGE = render(DOCUMENT).decode()


def test_the_page_has_every_operation_and_type_and_no_dead_link() -> None:
    """U1."""
    anchors = re.findall(r' id="([^"]+)"', PAGE)
    assert len(anchors) == len(set(anchors))
    wanted = {one["operationId"] for verbs in DOCUMENT["paths"].values() for one in verbs.values()}
    wanted |= {f"type-{name}" for name in DOCUMENT["components"]["schemas"]}
    assert wanted <= set(anchors)
    assert set(re.findall(r'href="#([^"]+)"', PAGE)) <= set(anchors)


def test_the_page_loads_nothing_and_its_policy_allows_its_style() -> None:
    """U1: no script, no other server; the hash is that of the style in the page."""
    assert not re.search(r"<script|<link|<img|src=|@import|url\(| style=| on\w+=", PAGE)
    assert set(re.findall(r'href="([^#"][^"]*)"', PAGE)) == {"openapi.json"}
    (style,) = re.findall(r"<style>(.*?)</style>", PAGE, re.DOTALL)
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in POLICY
    assert "unsafe" not in POLICY


def test_the_page_shows_an_example_of_every_body_and_answer() -> None:
    """U1."""
    operations = [one for verbs in DOCUMENT["paths"].values() for one in verbs.values()]
    bodies = [one for one in operations if "requestBody" in one]
    assert PAGE.count("<summary>Example of a body</summary>") == len(bodies) > 20
    assert PAGE.count("<summary>Example of an answer</summary>") == len(operations)
    assert "&quot;uri&quot;: &quot;https://example.org/a&quot;" in PAGE


def test_text_of_the_document_is_escaped() -> None:
    """U1: a description cannot add markup."""
    evil = "<script>alert(1)</script>"
    document = {
        "info": {"title": evil, "version": evil, "description": evil},
        "tags": [{"name": evil, "description": evil}],
        "paths": {f"/{evil}": {"get": _operation(evil)}},
        "components": {"schemas": {evil: _schema(evil)}},
    }
    assert "<script" not in render(document).decode()


def _operation(text: str) -> dict[str, Any]:
    schema = {"enum": [text], "default": text}
    return {
        "operationId": text,
        "summary": text,
        "description": text,
        "tags": [text],
        "parameters": [{"name": text, "schema": schema, "required": False, "description": text}],
        "requestBody": {"content": {text: {"schema": schema, "example": {text: [text]}}}},
        "responses": {text: {"description": text, "content": {text: {"example": text}}}},
    }


def _schema(text: str) -> dict[str, Any]:
    fields = {text: {"$ref": f"#/components/schemas/{text}"}, "a": {"type": text, "default": text}}
    return {"description": text, "properties": fields}
