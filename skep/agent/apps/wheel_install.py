"""Installs a wheel with its dependencies into its own environment. Runs on agents.

Wheels are fetched by name, as binaries and without their dependencies, which this module resolves
itself; it refuses requirements with a URL. They are installed in the sandbox of user code, without
a network. So code of a package runs only in its sandbox.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from skep.agent.apps.runner_contract import CannotRun
from skep.agent.apps.tool_process import run_tool
from skep.downloaders.code.isolation import ENVIRONMENT, Isolation, box_arguments
from skep.model.jobs.app import AppSpec

SECONDS = 600.0
#: Bytes that pip may need in addition to the environment.
SCRATCH_BYTES = 256 * 2**20
#: Maximum rounds of resolving dependencies, and maximum wheels of one application.
ROUNDS, WHEELS = 30, 300
NEEDS = Path(__file__).parent / "inside" / "needs.py"
_NAME = re.compile(r"[A-Za-z0-9_.+!-]+\.whl\Z")
#: A name and versions: nothing that pip could read as an option, a path or a URL.
_NEED = re.compile(r"[a-z0-9][a-z0-9._-]*(?:[<>=!~]=?=?[A-Za-z0-9.*+!_-]+(?:,|\Z))*\Z")
_QUIETLY = ("--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir")


def wheel_name(spec: AppSpec) -> str:
    """The file name, which pip reads; raises CannotRun."""
    if not _NAME.match(spec.package_name):
        raise CannotRun(f"{spec.package_name[:200]!r} is not a valid wheel name")
    return spec.package_name


class Installer:
    """Creates environments with the isolation that this machine supports."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation

    async def install(self, wheel: Path, environment: Path) -> None:
        """Raises CannotRun, with the last output of pip."""
        await _run([sys.executable, "-I", "-m", "venv", str(environment)], "cannot create a venv")
        wheels = environment.parent / "wheels"
        wheels.mkdir()
        shutil.copyfile(wheel, wheels / wheel.name)
        await self._collect(wheels, environment)
        offline = ("--no-index", "--no-deps", "--find-links", str(wheels), "--")
        files = [str(path) for path in sorted(wheels.glob("*.whl"))]
        pip = [_python(environment), "-I", "-m", "pip", "install", *_QUIETLY, *offline, *files]
        await _run(self._boxed(pip, wheels, environment), "pip cannot install it", own=True)
        shutil.rmtree(wheels)

    async def _collect(self, wheels: Path, environment: Path) -> None:
        """Download until no wheel needs another one."""
        for _ in range(ROUNDS):
            said = await self._look(wheels, environment)
            if said.get("problem"):
                raise CannotRun(f"pip cannot install it: {said['problem']}")
            if not said["missing"]:
                return
            for name in said["stale"]:
                (wheels / Path(name).name).unlink(missing_ok=True)
            await self._download(said["missing"], wheels, environment)
        raise CannotRun(f"pip cannot install it: no matching set of wheels after {ROUNDS} rounds")

    async def _look(self, wheels: Path, environment: Path) -> dict[str, Any]:
        command = [_python(environment), "-I", str(NEEDS), str(wheels)]
        code, said = await run_tool(
            self._boxed(command, wheels, environment, NEEDS), SECONDS, ENVIRONMENT, whole=True
        )
        try:
            found: dict[str, Any] = json.loads(said)
        except ValueError:
            raise CannotRun(f"cannot read the wheels ({code}): {said[-500:]}") from None
        return found

    async def _download(self, missing: list[str], wheels: Path, environment: Path) -> None:
        if bad := [need for need in missing if not _NEED.match(need)]:
            raise CannotRun(f"pip cannot install it: {bad[0][:200]!r} is not a valid requirement")
        if len(missing) + len(os.listdir(wheels)) > WHEELS:  # noqa: PTH208 - names are enough
            raise CannotRun(f"pip cannot install it: it needs more than {WHEELS} wheels")
        only = ("--only-binary", ":all:", "--no-deps", "--dest", str(wheels), "--")
        pip = [_python(environment), "-I", "-m", "pip", "download", *_QUIETLY, *only, *missing]
        await _run(pip, "pip cannot install it")

    def _boxed(self, command: list[str], wheels: Path, environment: Path, *more: Path) -> list[str]:
        """The command in a sandbox without a network, where only the environment is writable."""
        if not self._isolation.boxed:
            return command
        shown = [(str(path), str(path)) for path in (wheels, environment, *more)]
        box = box_arguments(SCRATCH_BYTES, root=self._isolation.own_user, also=shown)
        writable = ("--bind", str(environment), str(environment))
        return [self._isolation.bwrap, *box, *writable, *command]


def _python(environment: Path) -> str:
    return str(environment / "bin" / "python")


async def _run(command: list[str], trouble: str, *, own: bool = False) -> None:
    """`own`: without the operator's environment, which pip needs only to find an index."""
    code, said = await run_tool(command, SECONDS, ENVIRONMENT if own else None)
    if code:
        raise CannotRun(f"{trouble}: {said}")
