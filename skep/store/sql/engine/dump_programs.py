"""Runs the dump programs of database servers. Blocking.

Passwords are passed by the environment, never by arguments, which other users can read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from skep.errors import ConfigurationError, StoreDown


def run_program(
    name: str,
    package: str,
    words: Sequence[str],
    env: Mapping[str, str],
    source: Path | None = None,
) -> None:
    """Run it with `source` as its input; raises ConfigurationError when it is not installed, and
    StoreDown with its first line of output when it fails."""
    found = shutil.which(name)
    if found is None:
        raise ConfigurationError(f"{name} is not installed; install it (on Debian: {package})")
    given = source.open("rb") if source is not None else subprocess.DEVNULL
    try:
        done = subprocess.run(  # noqa: S603 - no user input
            [found, *words],
            stdin=given,
            capture_output=True,
            env={**os.environ, **env},
            check=False,
        )
    finally:
        if not isinstance(given, int):
            given.close()
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it printed no error"]
        raise StoreDown(f"{name} failed: {said[0]}")
