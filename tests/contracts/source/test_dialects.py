"""A database is one file: other modules of the store neither name a database nor compare names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.store.sql.engine.dialect import ColumnKind, Dialect
from skep.store.sql.engine.dialects.registry import DIALECTS, dialect_for, dialect_named
from tests.contracts.test_source import ROOT, python_files

OWN = "skep/store/sql/engine/dialects/"
#: Frozen: they name engines as they were when they were written.
STORED = "skep/store/sql/migrations/"
NAMES = {name for one in DIALECTS for name in (one.name, *one.schemes, *one.engine_names)}


def compared(text: str) -> list[int]:
    """Lines that compare `dialect.name`, match it, or name a database."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject]
        elif isinstance(node, ast.Constant) and node.value in NAMES:
            found.add(node.lineno)
        found |= {side.lineno for side in sides if ast.unparse(side).endswith("dialect.name")}
    return sorted(found)


def test_no_module_of_the_store_names_a_database() -> None:
    found = [
        f"{name}:{line}"
        for path in python_files("skep")
        if (name := str(path.relative_to(ROOT))).startswith("skep/store/")
        and not name.startswith((OWN, STORED))
        for line in compared(path.read_text())
    ]
    assert found == [], "ask a trait of the dialect (skep/store/sql/engine/dialect.py)"


@pytest.mark.parametrize(
    "text",
    [
        'if tx.dialect.name == "postgresql": ...',
        "query = a if connection.dialect.name in MYSQL else b",
        "match self.dialect.name:\n    case other: ...",
        'ways = {"sqlite": 1}',
    ],
)
def test_this_test_would_see(text: str) -> None:
    assert compared(text) == [1]


def test_every_dialect_has_one_file_and_a_line_in_the_list() -> None:
    files = {Path(path.name).stem for path in (ROOT / OWN).glob("*.py")}
    modules = [type(one).__module__.rpartition(".")[2] for one in DIALECTS]
    assert sorted(modules) == sorted(files - {"__init__", "registry"})


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_dialect_is_found_by_each_of_its_names(dialect: Dialect) -> None:
    for scheme in dialect.schemes:
        assert dialect_for(sa.make_url(f"{scheme}://place/name")) is dialect
    for name in (dialect.name, *dialect.engine_names):
        assert dialect_named(name) is dialect
    codes = [dialect.COLLISIONS, dialect.FULL, dialect.UNWRITABLE, dialect.DAMAGED]
    assert len(frozenset().union(*codes)) == sum(map(len, codes)), "a code means one thing"
    assert sum(dialect.dump_file == one.dump_file for one in DIALECTS) == 1
    assert {kind: dialect.column_type(kind, 16) for kind in ColumnKind}, "it knows every kind"
