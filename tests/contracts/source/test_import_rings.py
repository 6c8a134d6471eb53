"""No module of skep/ imports itself through others. Imports for types and in functions count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file."""
    found = {}
    for path in sorted((root / "skep").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports anywhere; the package alone where it takes a
    name of its `__init__`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module


def ring_of(graph: Mapping[str, set[str]]) -> list[str]:
    """One ring, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_there_is_no_ring() -> None:
    known = modules(ROOT)
    graph = {name: set(imported(path, known)) - {name} for name, path in known.items()}
    assert len(graph) > 500
    assert ring_of(graph) == []


@pytest.mark.parametrize("line", ["import skep.a", "from skep import a", "from skep.a import X"])
def test_a_ring_inside_a_function_is_found(tmp_path: Path, line: str) -> None:
    """The check can fail."""
    (tmp_path / "skep").mkdir()
    (tmp_path / "skep" / "a.py").write_text("from skep.b import Y\n")
    (tmp_path / "skep" / "b.py").write_text(f"def late():\n    {line}\n")
    known = modules(tmp_path)
    graph = {name: set(imported(path, known)) for name, path in known.items()}
    assert set(ring_of(graph)) == {"skep.a", "skep.b"}
