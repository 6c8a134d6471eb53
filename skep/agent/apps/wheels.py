"""Puts a wheel into an environment of its own, with what it needs. Runs on agents.

Only wheels are installed, because nothing of a wheel runs while it is installed: code of a
package runs in its box and nowhere else.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from skep.agent.apps.running import CannotRun
from skep.agent.apps.tool import run_tool
from skep.model.app import AppSpec

SECONDS = 600.0
_NAME = re.compile(r"[A-Za-z0-9_.+!-]+\.whl\Z")


def wheel_name(spec: AppSpec) -> str:
    """The file's name, which pip reads; raises CannotRun."""
    if not _NAME.match(spec.package_name):
        raise CannotRun(f"{spec.package_name[:200]!r} is no name of a wheel")
    return spec.package_name


async def install(wheel: Path, environment: Path) -> None:
    """Raises CannotRun, with pip's own last words."""
    await _run([sys.executable, "-I", "-m", "venv", str(environment)], "cannot make a venv")
    python = str(environment / "bin" / "python")
    quietly = ("--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir")
    wanted = ("--only-binary", ":all:", "--", str(wheel))
    await _run([python, "-I", "-m", "pip", "install", *quietly, *wanted], "pip cannot install it")


async def _run(command: list[str], trouble: str) -> None:
    code, said = await run_tool(command, SECONDS)
    if code:
        raise CannotRun(f"{trouble}: {said}")
