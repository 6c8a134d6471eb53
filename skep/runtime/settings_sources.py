"""Reads settings from a TOML file, the environment and files with secrets.

Used once, at the start of a process. It knows no settings: the caller passes their names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class BadSource(Exception):
    """A source cannot be read; the text names it and the reason."""


def read_toml(file: Path) -> dict[str, Any]:
    """Raises BadSource."""
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise BadSource(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSource(f"{file} is not valid UTF-8 text; write it as TOML") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSource(f"{file} is not valid TOML: {error}") from error


def from_environment(
    environment: Mapping[str, str], names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """(name, text) of every variable that is set, directly or by a file in its `_FILE` variable."""
    for variable, name in names.items():
        if variable in environment:
            yield name, environment[variable]
        elif path := environment.get(f"{variable}_FILE"):
            yield name, _read_secret(path, f"{variable}_FILE")


def _read_secret(path: str, variable: str) -> str:
    try:
        return Path(path).read_text().strip()
    except UnicodeDecodeError as error:
        raise BadSource(f"{variable}: {path} is not valid UTF-8 text") from error
    except OSError as error:
        raise BadSource(f"{variable}: cannot read {path}: {error.strerror}") from error


def put(merged: dict[str, Any], name: str, value: Any) -> None:
    """Set a value under a dotted name; raises BadSource when its table is a value."""
    room, _, field = name.rpartition(".")
    target = merged.setdefault(room, {}) if room else merged
    if not isinstance(target, dict):
        raise BadSource(f"`{room}` must be a table in the file, not a value")
    target[field] = value
