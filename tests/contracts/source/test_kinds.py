"""Kinds carry their traits: no module compares the name of a kind or of a strategy.

A name is that of a downloader kind, a placement strategy or a generator kind; all are taken from
the tables of `skep/model`, so that a new one is covered. What counts:

- a comparison (`==`, `!=`, `in`, `not in`) with such a name, or with a collection that holds one,
  written out, by a constant of any module, or as `HTTP.name`;
- a `case` of a `match` with such a name;
- a dictionary that has such a name as a key and is asked for a kind, a strategy or a downloader.

`http`, `any`, `python` and other names are words of their own too: a scheme, a language, a
command. A comparison with one of these counts when the other side is called a kind, a strategy or
a downloader. What a kind does is written in its own file, where its name may stand, and in the
registries, which are tables by name. `skep/testing` names kinds as tests do.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from skep.model.downloader_kinds import BUILT_IN as DOWNLOADERS
from skep.model.fleet.strategy_traits import BUILT_IN as STRATEGIES
from skep.model.jobs.generator_kinds import BUILT_IN as GENERATORS
from tests.contracts.test_source import ROOT, python_files

NAMES = frozenset(one.name for one in (*DOWNLOADERS, *STRATEGIES, *GENERATORS))
#: Names that mean something else in many places, and what they mean there.
WORDS = {
    "http": "a scheme, and a type of ASGI",
    "curl": "a setting, and a program",
    "sitemap": "an element of XML",
    "any": "no limit",
    "python": "a language",
    "shell": "a language, and a command",
    "file": "a thing on a disk",
    "list": "a type",
    "sql": "a language",
}
#: How the other side of a comparison with one of these is called when it is a kind.
CALLED = ("kind", "strategy", "downloader")
#: Files that may compare names, or look one up in a table.
OWN = {
    "skep/downloaders/code/": "the kinds python and shell, and what runs inside their sandbox",
    "skep/jobs/generators/sources.py": "the registry of generators without code",
    "skep/placement/strategies/registry.py": "the registry of strategies",
    "skep/model/downloader_kinds.py": "the table of downloader kinds",
    "skep/model/fleet/strategy_traits.py": "the table of strategies",
    "skep/model/jobs/generator_kinds.py": "the table of generator kinds",
}


class Comparisons(ast.NodeVisitor):
    """Finds comparisons with names in one module. `module` resolves its constants."""

    def __init__(self, module: ModuleType | None) -> None:
        self._module = module
        self._local: dict[str, AbstractSet[str]] = {}
        self.found: list[tuple[int, str]] = []

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._local[target.id] = self._names(node.value)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for place, side in enumerate(sides):
            others = [*sides[:place], *sides[place + 1 :]]
            self._judge(node, self._names(side), others)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        for case in node.cases:
            for pattern in ast.walk(case.pattern):
                if isinstance(pattern, ast.MatchValue):
                    self._judge(pattern, self._names(pattern.value), [node.subject])
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._asked(node, node.value, [node.slice])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            self._asked(node, node.func.value, node.args[:1])
        self.generic_visit(node)

    def _asked(self, node: ast.AST, table: ast.expr, keys: Sequence[ast.expr]) -> None:
        if any(map(is_called_a_kind, keys)):
            self._judge(node, self._names(table), keys)

    def _judge(self, node: Any, names: AbstractSet[str], others: Sequence[ast.expr]) -> None:
        called = any(map(is_called_a_kind, others))
        counted = {name for name in names if called or name not in WORDS}
        if counted:
            self.found.append((node.lineno, ", ".join(sorted(counted))))

    def _names(self, node: ast.expr) -> AbstractSet[str]:
        """The names of kinds that an expression stands for or holds."""
        match node:
            case ast.Constant(value=str(text)):
                return {text} & NAMES
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return {name for part in parts for name in self._names(part)}
            case ast.Dict(keys=parts):
                return {name for part in parts if part for name in self._names(part)}
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[inner]):
                return self._names(inner)
            case ast.Name(id=name) if self._local.get(name):
                return self._local[name]
        return held(self._value(node)) & NAMES

    def _value(self, node: ast.expr) -> Any:
        """What a constant of the module is, such as `PLAIN` or `HTTP.name`."""
        if isinstance(node, ast.Name):
            return getattr(self._module, node.id, None)
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, None)
        return None


def held(value: Any) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({str(value)})
    if isinstance(value, tuple | list | set | frozenset | dict):
        return frozenset(str(one) for one in value if isinstance(one, str))
    return frozenset()


def is_called_a_kind(node: ast.expr) -> bool:
    """By the last word of `one.settings.placement.strategy`, of `kind` and of `kind()`."""
    node = node.func if isinstance(node, ast.Call) else node
    word = getattr(node, "attr", "") or getattr(node, "id", "")
    return any(one in word.lower() for one in CALLED)


def compared(text: str, module: ModuleType | None = None) -> list[tuple[int, str]]:
    visitor = Comparisons(module)
    visitor.visit(ast.parse(text))
    return visitor.found


def module_of(path: Path) -> ModuleType | None:
    """None for a program and for what Alembic runs: they cannot be imported."""
    if path.stem in {"__main__", "env"}:
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    return import_module(".".join(parts).removesuffix(".__init__"))


def test_no_module_compares_the_name_of_a_kind_or_strategy() -> None:
    found = [
        f"{name}:{line}: {names}"
        for path in python_files("skep")
        if not (name := str(path.relative_to(ROOT))).startswith(("skep/testing/", *OWN))
        and any(one in path.read_text() for one in NAMES)
        for line, names in compared(path.read_text(), module_of(path))
    ]
    assert found == [], "ask the traits of the kind instead (skep/model)"


CAUGHT = {
    "equality": 'if placement.strategy == "fixed": ...',
    "inequality": 'if "chained" != asked: ...',
    "membership": 'if run.downloader in {"http", "other"}: ...',
    "a constant": 'CODE = frozenset({"python", "shell"})\nif part.kind not in CODE: ...',
    "a constant of another module": "if kind == HTTP.name: ...",
    "a collection of another module": "if downloader in KINDS: ...",
    "a match": 'match placement.strategy:\n    case "hashed": ...',
    "a table": '{"fixed": 1, "any": 0}.get(self.strategy, 0)',
    "a subscript": 'NEEDS = {"sql": 1}\nNEEDS[part.kind]',
    "a generator": 'if generator.kind == "sitemap": ...',
}
PASSED = {
    "a scheme": 'if parts.scheme in {"http", "https"}: ...',
    "ASGI": 'if scope["type"] == "http": ...',
    "a column": 'print(row["file"], view["hashed"])',
    "another name": 'if failure.kind == "crash": ...',
    "a trait": "if placement.traits.chooses: ...",
}


@pytest.mark.parametrize("what", CAUGHT)
def test_this_test_would_see(what: str) -> None:
    module = ModuleType("tried")
    module.HTTP = DOWNLOADERS[0]  # type: ignore[attr-defined]  # as an import would
    module.KINDS = tuple(one.name for one in DOWNLOADERS)  # type: ignore[attr-defined]
    assert compared(CAUGHT[what], module) != []


@pytest.mark.parametrize("what", PASSED)
def test_this_test_lets_pass(what: str) -> None:
    assert compared(PASSED[what]) == []


def test_the_files_that_may_compare_exist() -> None:
    assert [path for path in OWN if not (ROOT / path).exists()] == []
    assert set(WORDS) <= NAMES
