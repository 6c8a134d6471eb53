"""What is stored: migrations, values of enums, names of keys, files and headers.

Read by `compatibility`. Names are found in the syntax trees of the whole package, so a constant
that moves to another module changes nothing here. Tables are not recorded: migrations change
them, and `tests/backends/test_migrations.py` compares the result with the code.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import skep
from skep import model
from skep.store.sql.engine.migrate import SCRIPTS
from skep.wire import messages
from tools.recorded_interfaces import recorded_name

PACKAGE = Path(skep.__file__).parent
#: Of the package itself, of /proc, of a scratch folder; and ends of host names.
NOT_STORED = {
    *("inside", "launch.py", "needs.py", "migrations", "bin", "python", "repository"),
    *("environ", "loadavg", "meminfo", "stat"),
    *(".corp", ".home", ".home.arpa", ".internal", ".intranet", ".lan", ".local", ".localhost"),
    *(".private", ".py", ".html", ".git"),
}
_HEADER = re.compile(r"\b(?:WARC|Skep|X-Skep)-[A-Za-z]+(?:-[A-Za-z]+)*")
#: Only files that match are parsed.
_PROMISING = re.compile(r"skep:|WARC-|Skep-|SKEP_| / |[\"']\.[a-z]")
_SUFFIX = re.compile(r"\.[a-z]+(\.[a-z]+)*")


def revisions() -> dict[str, Any]:
    """Every Alembic script by file name: its id and the one before it."""
    found = {}
    for script in sorted(SCRIPTS.glob("versions/[0-9]*.py")):
        values = _constants(ast.parse(script.read_text()))
        before = values["down_revision"]
        found[script.name] = {"revision": values["revision"], "after": before or "none"}
    return found


def enums() -> dict[str, Any]:
    """Enums of the model: their values are in tables, messages and answers."""
    found: dict[str, Any] = {}
    for info in pkgutil.walk_packages(model.__path__, f"{model.__name__}."):
        for kind in vars(importlib.import_module(info.name)).values():
            if isinstance(kind, type) and issubclass(kind, Enum) and _is_of_model(kind):
                found[recorded_name(kind.__name__)] = {one.name: one.value for one in kind}
    return found


def _is_of_model(kind: type) -> bool:
    return kind.__module__.startswith(f"{model.__name__}.")


def names() -> dict[str, Any]:
    """Keys of Redis, headers, variables, and names of files and folders in paths."""
    texts, parts = set[str](), set[str]()
    for tree in _trees():
        texts |= set(_texts(tree))
        parts |= set(_path_parts(tree))
    written = {found for text in texts for found in _HEADER.findall(text)}
    return {
        "redis keys": sorted(text for text in texts if re.fullmatch(r"skep:\S+", text)),
        "headers": sorted(written | {name for _, name in _wire_headers()}),
        "variables": sorted(text for text in texts if re.fullmatch(r"_?SKEP_[A-Z_]+", text)),
        "files": sorted(parts - NOT_STORED),
        "suffixes": sorted(set(filter(_SUFFIX.fullmatch, texts)) - NOT_STORED),
    }


def _wire_headers() -> Iterator[tuple[str, str]]:
    return ((name, text) for name, text in vars(messages).items() if name.endswith("_HEADER"))


def _trees() -> Iterator[ast.Module]:
    """The trees of all product code; test doubles store nothing for a user."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        apart = {"testing", "migrations"} & set(path.relative_to(PACKAGE).parts)
        if not apart and _PROMISING.search(text):
            yield ast.parse(text)


def _texts(tree: ast.AST) -> Iterator[str]:
    """All strings except docstrings; an f-string is one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        text = _text(node)
        yield from _texts(node) if text is None else (text,)


def _text(node: ast.AST) -> str | None:
    """A string, or an f-string with `{}` for its values."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return None


def _path_parts(tree: ast.Module) -> Iterator[str]:
    """The operands to the right of a `/`: text, or the name of a constant of the same module."""
    known = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            name = node.right.id if isinstance(node.right, ast.Name) else ""
            text = _text(node.right) or known.get(name)
            if isinstance(text, str) and re.search(r"[a-z]", text):
                yield text


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Constants that a module sets at its top level."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
