"""The same call as a command and as curl, to copy. Pure.

The address is the one that the browser used; the token is a variable of the shell, so that a
copied text holds no secret.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Copied:
    """Two texts for the clipboard; "" = there is none."""

    command: str = ""
    curl: str = ""


def command(*words: str) -> str:
    """A command line of the program, safe to paste."""
    return shlex.join(("skep", *words))


def curl(address: str, path: str, method: str = "GET", body: str = "") -> str:
    """A call of the API. `address` is that of the center, with its prefix."""
    words = ["curl", "-sS"]
    if method != "GET":
        words += ["-X", method]
    if body:
        words += ["-H", "Content-Type: application/json", "-d", body]
    line = shlex.join([*words, f"{address}{path}"])
    return f'{line} -H "Authorization: Bearer $SKEP_TOKEN"'


def copied(address: str, words: tuple[str, ...], path: str, method: str = "GET") -> Copied:
    return Copied(command(*words), curl(address, path, method))
