"""Databases differ in one file: other modules of the store never compare a dialect's name."""

from __future__ import annotations

import ast

import pytest

from tests.contracts.test_source import ROOT, python_files

#: The dialects, and the column types and partial indexes that SQLAlchemy chooses by a name.
OWN = ("skep/store/sql/engine/dialect.py", "skep/store/sql/schema/columns.py")
STORED = "skep/store/sql/migrations/"


def compared(text: str) -> list[int]:
    """Lines that compare `dialect.name`, or match it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject]
        found += [side.lineno for side in sides if ast.unparse(side).endswith("dialect.name")]
    return found


def test_no_module_of_the_store_compares_a_dialects_name() -> None:
    found = [
        f"{name}:{line}"
        for path in python_files("skep")
        if (name := str(path.relative_to(ROOT))).startswith("skep/store/sql/")
        and not name.startswith((*OWN, STORED))
        for line in compared(path.read_text())
    ]
    assert found == [], "ask a trait of the dialect (skep/store/sql/engine/dialect.py)"


@pytest.mark.parametrize(
    "text",
    [
        'if tx.dialect.name == "postgresql": ...',
        "query = a if connection.dialect.name in MYSQL else b",
        'match self.dialect.name:\n    case "mysql": ...',
    ],
)
def test_this_test_would_see(text: str) -> None:
    assert compared(text) == [1]
