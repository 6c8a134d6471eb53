"""The content of the drawing: rooms in layers, the imports between them, the steps of a request.

Layers come from the import law in `pyproject.toml`, sentences from the docstrings of the rooms,
imports from the modules, and steps from `docs/why/one-request.md`. It writes nothing.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGE = "skep"
PAGE = ROOT / "docs" / "why" / "one-request.md"
#: The programs; a room that one of them imports, directly or indirectly, is part of it.
PROGRAMS = ("center", "agent")
_STEP = re.compile(
    r"^## (?P<number>\d+)\. (?P<title>.+)\n\n"
    r"File: `(?P<file>[^`]+)`\.(?: State: `(?P<state>\w+)`\.)?$",
    re.MULTILINE,
)

#: (importing room, imported room) -> number of imports from module to module.
Imports = Mapping[tuple[str, str], int]


class BadFacts(Exception):
    """The package or the page does not have the form that the drawing needs."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a request; `state` is empty if the step does not change it."""

    number: int
    title: str
    file: str
    state: str

    @property
    def room(self) -> str:
        return Path(self.file).parts[1]

    @property
    def module(self) -> str:
        """The file without the folder of the package."""
        return str(Path(self.file).relative_to(PACKAGE))


@dataclass(frozen=True, slots=True)
class Facts:
    """The content of the drawing."""

    layers: list[list[str]]
    sentences: dict[str, str]
    imports: Imports
    steps: list[Step]

    @property
    def rooms(self) -> list[str]:
        return [room for layer in self.layers for room in layer]

    def steps_in(self, room: str) -> list[int]:
        return [step.number for step in self.steps if step.room == room]


def read_facts() -> Facts:
    layers = read_layers()
    rooms = [room for layer in layers for room in layer]
    sentences = {room: first_sentence(docstring_of(room)) for room in rooms}
    return Facts(layers, sentences, read_imports(rooms), read_steps(PAGE.read_text()))


def read_layers() -> list[list[str]]:
    """Rooms from top to bottom; those of one line do not import each other."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    laws = [one for one in linter["contracts"] if one["type"] == "layers"]
    law = next(one for one in laws if one.get("containers") == [PACKAGE])
    return [re.split(r"\s*[|:]\s*", layer) for layer in law["layers"]]


def docstring_of(room: str) -> str:
    folder = ROOT / PACKAGE / room
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text()))
    if not text:
        raise BadFacts(f"{path.relative_to(ROOT)} has no docstring")
    return text


def first_sentence(text: str) -> str:
    """The first sentence, on one line and without the marks of code."""
    paragraph = " ".join(text.partition("\n\n")[0].split()).replace("`", "")
    return re.split(r"(?<=[.!?])\s", paragraph)[0]


def read_imports(rooms: Iterable[str]) -> Imports:
    known = set(rooms)
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    pairs = (
        (room_of(importer), room_of(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    )
    counted = Counter(pair for pair in pairs if pair[0] != pair[1] and known.issuperset(pair))
    return dict(sorted(counted.items()))


def room_of(module: str) -> str:
    return f"{module}.".split(".")[1]


def read_steps(page: str) -> list[Step]:
    """The steps of the page; raises BadFacts if a heading is skipped or a file is missing."""
    steps = [
        Step(int(found["number"]), found["title"], found["file"], found["state"] or "")
        for found in _STEP.finditer(page)
    ]
    headings = re.findall(r"^## \d+\..*$", page, flags=re.MULTILINE)
    if not steps or len(steps) != len(headings):
        raise BadFacts(f"{len(headings)} numbered headings, {len(steps)} of them with a file")
    if [step.number for step in steps] != [*range(1, len(steps) + 1)]:
        raise BadFacts("the numbers of the steps are not 1, 2, 3 and so on")
    absent = [step.file for step in steps if not (ROOT / step.file).is_file()]
    if absent:
        raise BadFacts(f"files of steps that do not exist: {', '.join(absent)}")
    return steps


def reachable(imports: Imports, room: str) -> set[str]:
    """Every room that this one imports, directly or through others."""
    found: set[str] = set()
    waiting = [room]
    while waiting:
        current = waiting.pop()
        new = {below for above, below in imports if above == current} - found
        found |= new
        waiting += sorted(new)
    return found


def needed_lines(imports: Imports) -> list[tuple[str, str]]:
    """The minimal imports that imply all others: those without a longer path."""
    below = {room: reachable(imports, room) for pair in imports for room in pair}
    return [
        (above, target)
        for above, target in imports
        if not any((above, other) in imports and target in below[other] for other in below)
    ]


def programs_of(imports: Imports, room: str) -> frozenset[str]:
    """The programs that contain this room."""
    return frozenset(
        program for program in PROGRAMS if room == program or room in reachable(imports, program)
    )
