"""Where settings come from: a TOML file, the environment, files with secrets.

Read once, at the start of a process. It knows no setting: names and their meaning are given.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class BadSource(Exception):
    """A source cannot be read; the text says which and why."""


def read_toml(file: Path) -> dict[str, Any]:
    """Raises BadSource."""
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise BadSource(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSource(f"{file} is not text (it is not UTF-8); write it as TOML") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSource(f"{file} is not TOML: {error}") from error


def from_environment(
    environment: Mapping[str, str], names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(name, text) of every variable that is set, or whose `_FILE` names a file."""
    for variable, name in names.items():
        if variable in environment:
            yield name, environment[variable]
        elif path := environment.get(f"{variable}_FILE"):
            yield name, _read_secret(path, f"{variable}_FILE")


def _read_secret(path: str, variable: str) -> str:
    try:
        return Path(path).read_text().strip()
    except UnicodeDecodeError as error:
        raise BadSource(f"{variable}: {path} is not text (it is not UTF-8)") from error
    except OSError as error:
        raise BadSource(f"{variable}: cannot read {path}: {error.strerror}") from error


def put(merged: dict[str, Any], name: str, value: Any) -> None:
    """Under a dotted name; raises BadSource when its table is a value."""
    room, _, field = name.rpartition(".")
    target = merged.setdefault(room, {}) if room else merged
    if not isinstance(target, dict):
        raise BadSource(f"`{room}` must be a table in the file, not a value")
    target[field] = value
