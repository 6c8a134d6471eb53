"""How this program was started, and commands in messages that can be pasted.

Messages of the program and of centers contain `skep COMMAND` in backticks. Before a message is
printed, `skep` is replaced by what the user typed (`.venv/bin/skep`, `python -m skep`), and the
options that select the center are added. Every command imports it; it imports nothing heavy.
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
#: A command in a message: in backticks, or from `$ ` to the end of the line.
_QUOTED = re.compile(r"`skep ([^`\n]+)`")
_TO_THE_END = re.compile(r"(?m)(^ *\$ )skep (.+)$")
#: Commands that do not call a center, and commands that have only a data folder.
_NO_PLACE = {"demo", "new", "fetch", "shell", "parse", "completion", "version", "cluster"}
_FOLDER_ONLY = {"up", "center", "agent"}

_place: list[str] = []


def program(argv0: str | None = None) -> str:
    """The words that start this program again from the same folder."""
    started = sys.argv[0] if argv0 is None else argv0
    if Path(started).name == "__main__.py":
        return f"{_shortest(sys.executable, 'python')} -m {NAME}"
    if Path(started).name != NAME:  # not this command line: a test, or a program that embeds it
        return NAME
    return shlex.quote(_shortest(started, NAME))


def _shortest(path: str, name: str) -> str:
    """`name` if the shell resolves it to this file, otherwise the path."""
    found = shutil.which(name)
    if found and _same(found, path):
        return name
    here = os.path.relpath(path)
    return here if not here.startswith("..") else path


def _same(one: str, other: str) -> bool:
    """Whether the paths are equal. Links are not resolved: two links to one Python may belong to
    different environments."""
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - links are not resolved


def remember_place(options: Sequence[str]) -> None:
    """Remember the command-line options that select the center or data folder."""
    _place[:] = options


def with_hints(text: str) -> str:
    """Return the text with commands that can be pasted."""
    if "skep " not in text:
        return text
    text = _QUOTED.sub(lambda found: f"`{command_line(found[1])}`", text)
    return _TO_THE_END.sub(lambda found: f"{found[1]}{command_line(found[2])}", text)


def command_line(rest: str) -> str:
    """The command line to type; options are not added if it names its center already."""
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
