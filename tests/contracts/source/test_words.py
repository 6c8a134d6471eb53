"""Names speak the language of `docs/why/glossary.md`: retired words stay out of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "why" / "glossary.md"
#: Names that other programs depend on: schemas of the API, and messages.
PUBLISHED = {"AppWish", "Beats", "SeatLine"}
#: Names that still carry a retired word. Entries only ever leave this list.
STILL: set[str] = set()


def retired_words() -> set[str]:
    """The first column of the table of retired words."""
    section = PAGE.read_text().split("## Retired words")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    return {word for row in rows if row != "retired" for word in row.split(", ")}


def words_of(name: str) -> set[str]:
    """`Explainer` and `why_desk` are both {why, desk}."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names_in(path: Path) -> Iterator[str]:
    """The module, its folders, and the classes and functions of a file."""
    yield from (part for part in path.relative_to(ROOT).with_suffix("").parts)
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds) and not node.name.startswith("test_"):
            yield node.name


def carrying_names() -> set[str]:
    retired = retired_words()
    files = (path for path in (ROOT / "skep").rglob("*.py") if "versions" not in path.parts)
    names = {name for path in files for name in names_in(path)}
    return {name for name in names - PUBLISHED if words_of(name) & retired}


def test_the_page_lists_retired_words() -> None:
    assert len(retired_words()) > 40


def test_no_name_carries_a_retired_word() -> None:
    assert sorted(carrying_names() - STILL) == []


def test_the_list_of_names_that_still_do_only_shrinks() -> None:
    """An entry whose name is gone is removed from the list."""
    assert sorted(STILL - carrying_names()) == []
