"""Reads the descriptions of fields from the `#:` comments in the source of their classes.

The comment above a field is its only documentation: the API's description shows the same
text. Each source is parsed once, when the description is generated.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache

_MARK = "#:"


@cache
def field_comments(kind: type) -> dict[str, str]:
    """Field name: text of its comment. A subclass inherits those of its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _comments_of(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _comments_of(module: str) -> dict[str, dict[str, str]]:
    """Comments by qualified class name; none where the source is not installed."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    lines = source.splitlines()
    return {
        name: {field: text for field, line in _fields(node) if (text := _above(lines, line))}
        for name, node in _classes(ast.parse(source).body, "")
    }


def _classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, node
            yield from _classes(node.body, f"{prefix}{node.name}.")


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id, part.lineno


def _above(lines: list[str], number: int) -> str:
    """Text of the comment lines directly above a line; lines are counted from 1."""
    words: list[str] = []
    for line in reversed(lines[: number - 1]):
        text = line.strip()
        if not text.startswith(_MARK):
            break
        words.insert(0, text.removeprefix(_MARK).strip())
    return " ".join(words)
