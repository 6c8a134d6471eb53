"""Settings of a command: flags, then the environment, a TOML file, the defaults.

Used by commands before they do anything else. An unknown setting is an error; it is never
ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from skep.runtime.value_errors import no_setting
from skep.settings import Settings, documented, load


def read_settings(
    config: Path | None,
    data: Path | None,
    chosen: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read settings from flags, then --set, the environment, the file and the defaults."""
    given = {**dict(_pair(text) for text in chosen), **_present(flags or {})}
    if data is not None:
        given["data"] = str(data)
    return load(config, os.environ, given)


def _present(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _pair(text: str) -> tuple[str, Any]:
    name, value = split_pair(text, "--set")
    room, _, field = name.partition(".")
    default = getattr(getattr(Settings(), room, None), field, None)
    if default is None and name != "data":
        known = [f"{room}.{field}" for room, field, *_ in documented()]
        raise click.UsageError(f"--set: {no_setting(name, known)} (docs/reference/settings.md)")
    return name, value.split(",") if isinstance(default, tuple) else value


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Split `name=value`; raises a usage error if the text has another form."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.UsageError(f"{option}: {text!r} does not have the form NAME=VALUE")
    return name, value
