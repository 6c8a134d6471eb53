"""The shape of the package is what its page and its laws say."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import skep

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "why" / "architecture.md"


def rooms_that_exist() -> set[str]:
    entries = (ROOT / "skep").iterdir()
    return {
        entry.stem
        for entry in entries
        if (entry.is_dir() and (entry / "__init__.py").exists())
        or (entry.suffix == ".py" and not entry.stem.startswith("__"))
    }


def rooms_on_the_page() -> dict[str, str]:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(rows)


def layers_of_the_law() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers: list[str] = contracts["contracts"][0]["layers"]
    return [layer.split(" | ") for layer in layers]


def words(text: str) -> str:
    return " ".join(text.replace(">", " ").split())


def test_the_import_law_holds() -> None:
    """A room imports only rooms below it; the agent stays small; ports, never backends."""
    linter = Path(sys.executable).parent / "lint-imports"
    command = [str(linter), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_lists_exactly_the_rooms_that_exist() -> None:
    assert set(rooms_on_the_page()) == rooms_that_exist()


def test_the_law_knows_exactly_the_rooms_that_exist() -> None:
    assert {room for layer in layers_of_the_law() for room in layer} == rooms_that_exist()


def test_the_page_lists_rooms_from_top_to_bottom_as_the_law_does() -> None:
    in_order = [room for layer in layers_of_the_law() for room in layer]
    assert list(rooms_on_the_page()) == in_order


def test_the_page_says_the_sentence_of_the_package() -> None:
    sentence = words((skep.__doc__ or "").split("\n\n")[1])
    assert sentence in words(PAGE.read_text())


def test_every_room_of_the_page_has_a_line_that_says_what_it_is_for() -> None:
    assert [room for room, line in rooms_on_the_page().items() if len(line.split()) < 5] == []
