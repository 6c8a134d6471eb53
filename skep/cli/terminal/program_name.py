"""How this program was started, and hints that work when they are pasted.

Messages of the program and of centers say `skep COMMAND` in backticks. Before one is printed,
the word `skep` becomes what you typed (`.venv/bin/skep`, `python -m skep`), and the options
that say which center is meant are added. Run by every command; nothing heavy is imported.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "skep"
#: A command in a message: in backticks, or after one of these words to the end of the line.
_QUOTED = re.compile(r"`skep ([^`\n]+)`")
_TO_THE_END = re.compile(r"(?m)(^ *\$ )skep (.+)$")
#: Commands that talk to no center, and those that only have a data folder.
_NO_PLACE = {"demo", "new", "fetch", "shell", "parse", "completion", "version", "cluster"}
_FOLDER_ONLY = {"up", "center", "agent"}

_place: list[str] = []


def program(argv0: str | None = None) -> str:
    """What to type to run this program again, from the same folder."""
    started = sys.argv[0] if argv0 is None else argv0
    if Path(started).name == "__main__.py":
        return f"{_shortest(sys.executable, 'python')} -m {NAME}"
    if Path(started).name != NAME:  # not this command line: a test, or a program that embeds it
        return NAME
    return shlex.quote(_shortest(started, NAME))


def _shortest(path: str, name: str) -> str:
    """`name` where the shell finds this very file by it, else a path."""
    found = shutil.which(name)
    if found and _same(found, path):
        return name
    here = os.path.relpath(path)
    return here if not here.startswith("..") else path


def _same(one: str, other: str) -> bool:
    """The same path, or links to it; two links to one Python are not the same environment."""
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - links are not resolved


def remember_place(options: Sequence[str]) -> None:
    """Options of the command line that say which center or data folder is meant."""
    _place[:] = options


def with_hints(text: str) -> str:
    """The text with commands that can be pasted."""
    if "skep " not in text:
        return text
    text = _QUOTED.sub(lambda found: f"`{command_line(found[1])}`", text)
    return _TO_THE_END.sub(lambda found: f"{found[1]}{command_line(found[2])}", text)


def command_line(rest: str) -> str:
    """A command line as it must be typed here; one that names its center is left alone."""
    first = rest.split(maxsplit=1)[0]
    options = [] if first in _NO_PLACE or first.startswith("-") else _options(first, rest)
    return " ".join([program(), rest, *options])


def _options(command: str, rest: str) -> list[str]:
    pairs = list(zip(_place[::2], _place[1::2], strict=True))
    if command in _FOLDER_ONLY:
        pairs = [pair for pair in pairs if pair[0] in {"--data", "--config"}]
    if any(name in rest.split() for name, _ in pairs):
        return []
    return [word for name, value in pairs for word in (name, shlex.quote(value))]
