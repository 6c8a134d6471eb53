"""Parses Python and returns the names that a module binds, or the error. Standard library only.

`code_parse` runs this file in a separate process for long code: the parser holds the lock of its
interpreter until it has finished. The code is never executed.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

_SHOWN = 100


def parsed(source: str) -> dict[str, Any]:
    """`names` of a module that parses; else `why`, with `line` and `text` if known."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        text = (error.text or "").strip()[:_SHOWN]
        return {"line": error.lineno or 0, "why": error.msg, "text": text}
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return {"why": f"cannot be parsed: {error}"}
    return {"names": sorted(set(_names(tree)))}


def _names(tree: ast.Module) -> Iterator[str]:
    """Names that the module binds at its top level, also inside `if` and `try`."""
    ahead: list[ast.stmt] = list(tree.body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
        for part in ("body", "orelse", "finalbody"):
            ahead += getattr(node, part, ())
        for handler in getattr(node, "handlers", ()):
            ahead += handler.body


if __name__ == "__main__":
    source = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    sys.stdout.write(json.dumps(parsed(source)))
