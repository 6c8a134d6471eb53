"""Docs, help texts, errors and docstrings avoid phrases that need a second reading.

Names are checked by `test_words.py`; this file checks sentences. Code in pages is left out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "skep"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
#: Pattern: what to write instead.
PHRASES = {
    r"whoever|whomever": "the agent, the caller, any user",
    r"nobody|somebody|everybody|anybody": "no agent, a user, all centers",
    r"(?:see|sees|saw|seen|seeing) to(?! it that)": "supervise, process, handle",
    r"for ever": "permanently, without limit",
    r"so many": "N",
    r"mend|mends|mended|mending": "fix",
    r"manners": "politeness, rate limits",
    r"(?<!there )is no(?! longer| more| smaller| larger)": "is not a, has no",
    r"by turns": "alternately",
    r"what is (?:not )?said": "the given values, the filters",
    r"(?:not|never) heard of": "timed out, sends no heartbeats",
    r"for want of": "because ... is full",
    r"spoken": "supported",
    r"absurd": "out of range",
    r"of (?:your|one's) own": "your own machines",
    r"ends? well": "finish successfully",
    r"trying on": "retrying",
    r"met a bug": "unexpected error",
    r"must all fit": "combined with AND",
    r"obeyed in": "acknowledged in",
}
FOUND = {text: re.compile(rf"\b(?:{text})\b", re.IGNORECASE) for text in PHRASES}
#: Pages made from the code say what the code says: they are checked with it, by room.
MADE = "<!-- Made by `make docs`"
CODE = re.compile(r"^ *```.*?^ *```$|^(?: {4,}|\t)\S.*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
RETIRED = re.compile(r"^## Retired words$.*?(?=^## )", re.MULTILINE | re.DOTALL)


def hits(text: str) -> Iterator[str]:
    """Each phrase in the text with some words around it, and what to write instead."""
    flat = " ".join(text.split())
    for pattern, compiled in FOUND.items():
        for match in compiled.finditer(flat):
            around = flat[max(0, match.start() - 30) : match.end() + 30]
            yield f"...{around}... ({PHRASES[pattern]})"


def prose_of(page: Path) -> str:
    """A page without code; the glossary without the words that it retires."""
    text = page.read_text()
    if MADE in text:
        return ""
    return CODE.sub(" ", RETIRED.sub("", text))


def docstrings_and_literals(tree: ast.AST) -> Iterator[str]:
    """Strings with a space in them; single words are names, not prose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def documentation_comments(source: str) -> str:
    """`#:` lines: pages and the API's description show them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return " ".join(text.removeprefix("#:").strip() for text in texts if text.startswith("#:"))


def rooms() -> list[str]:
    entries = (path for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir())
    return sorted(path.stem for path in entries if path.stem != "__pycache__")


def files_of(room: str) -> list[Path]:
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def hits_in(paths: Iterable[Path]) -> list[str]:
    found: list[str] = []
    for path in paths:
        source = path.read_text()
        texts = [*docstrings_and_literals(ast.parse(source)), documentation_comments(source)]
        name = path.relative_to(ROOT)
        found += (f"{name}: {hit}" for text in texts for hit in hits(re.sub(r"`[^`]+`", " ", text)))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_plain(page: Path) -> None:
    assert list(hits(prose_of(page))) == []


@pytest.mark.parametrize("room", rooms())
def test_texts_of_a_room_are_plain(room: str) -> None:
    """Docstrings, help texts, errors, log lines and documentation comments."""
    assert hits_in(files_of(room)) == []


@pytest.mark.parametrize("folder", ["bench", "tools"])
def test_texts_beside_the_package_are_plain(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert len(paths) > 5
    assert hits_in(path for path in paths if ".peers" not in path.parts) == []


def test_the_check_finds_phrases_and_nothing_else() -> None:
    assert len(list(hits("Whoever\nsees  to it is no\nhelp, for ever."))) == 4
    fine = "There is no center; it is no longer up. See the recommended page. Forever. Amended."
    assert list(hits(fine)) == []
    assert "nobody" not in CODE.sub(" ", "```\nnobody\n```\n    nobody\nand `nobody` here")


#: `(C4)`, `(A3, C6)`, `(fault 59)`: ids are for tests; docs/reference/requirements.md lists them.
REQUIREMENT = re.compile(r"\((?:[A-Z]\d{1,2}(?:, )?)+\)|\(fault \d+\)")


def test_product_code_names_no_requirement() -> None:
    """Test tools may: they are a part of the tests."""
    files = [path for path in PACKAGE.rglob("*.py") if "testing" not in path.parts]
    found = [str(path) for path in files if REQUIREMENT.search(path.read_text())]
    assert len(files) > 500
    assert found == []
    assert REQUIREMENT.search("as it was told to (C6).")
