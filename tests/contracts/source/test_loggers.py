"""A logger is named after the module that writes to it, so that a line leads to its code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "skep"
#: The author's own logger (`self.log`), named for the spider and not for a module of ours.
AUTHORS = "f'skep.spider.{self.name}'"


def misnamed(code: str) -> Iterator[str]:
    """Loggers with a name of their own. One that is only given a level or a handler is free:
    `getLogger("x").setLevel(...)`, and the root logger, `getLogger()`."""
    tree = ast.parse(code)
    levels = {
        id(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "setLevel"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            if node.args and id(node) not in levels and not _is_own_name(node.args[0]):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ROOT_LOGGER:
            yield f"line {node.lineno}: {ast.unparse(node.func)}"


ROOT_LOGGER = {
    f"logging.{level}" for level in ("debug", "info", "warning", "error", "critical", "exception")
}


def _is_own_name(name: ast.expr) -> bool:
    words = ast.unparse(name)
    return words in {"__name__", AUTHORS} or words.startswith("f'{__name__}.")


def test_loggers_are_named_after_their_module() -> None:
    """3.7."""
    found = {
        str(path.relative_to(PACKAGE.parent)): names
        for path in PACKAGE.rglob("*.py")
        if (names := list(misnamed(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("code", "fits"),
    [
        ("log = logging.getLogger(__name__)", True),
        ("log = logging.getLogger(f'{__name__}.client')", True),
        ("logging.getLogger('uvicorn').setLevel(30)", True),
        ("root = logging.getLogger()", True),
        ("log = logging.getLogger('skep.center')", False),
        ("log = getLogger(OURS)", False),
        ("logging.warning('x')", False),
    ],
)
def test_what_is_found(code: str, fits: bool) -> None:
    assert (not list(misnamed(code))) is fits
