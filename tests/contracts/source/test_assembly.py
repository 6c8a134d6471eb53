"""A center is put together in one direction: each part is complete when it is made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CENTER = Path(__file__).parents[3] / "skep" / "center"
ASSEMBLY = ("services.py", "job_assembly.py", "placement_assembly.py", "center_signals.py")
#: Lines of `build()`, most of which name the parts.
LONGEST_BUILD = 60
#: Most arguments of what puts parts together.
MOST_ARGUMENTS = 7


def functions(name: str) -> list[ast.FunctionDef]:
    tree = ast.parse((CENTER / name).read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("name", ASSEMBLY)
def test_nothing_is_wired_after_construction(name: str) -> None:
    """No attribute of a part is set, and no function uses a name that is bound after it: either
    would mean that a part is used before it has all that it needs."""
    set_later = [
        ast.unparse(target)
        for node in ast.walk(ast.parse((CENTER / name).read_text()))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    ]
    assert set_later == []
    assert [late for function in functions(name) for late in _bound_later(function)] == []


def _bound_later(function: ast.FunctionDef) -> list[str]:
    """Names that an inner function or lambda uses and that the outer one binds further down."""
    bound = {
        node.id: node.lineno
        for node in reversed(list(ast.walk(function)))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    inner = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and node is not function
    ]
    return [
        f"{function.name}: {name.id}"
        for node in inner
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and bound.get(name.id, 0) > (node.end_lineno or 0)
    ]


def test_the_assembly_can_be_read_at_one_sitting() -> None:
    (build,) = [one for one in functions("services.py") if one.name == "build"]
    assert (build.end_lineno or 0) - build.lineno < LONGEST_BUILD
    crowded = {
        f"{name}: {one.name}"
        for name in ASSEMBLY
        for one in functions(name)
        if len(one.args.args) + len(one.args.kwonlyargs) > MOST_ARGUMENTS
    }
    assert crowded == set()
