"""The first minutes: a built wheel in an empty environment does what the README says (U8)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skep.testing.needs import absent
from skep.testing.private import ServerMissing

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PATIENCE = 300.0

pytestmark = pytest.mark.xdist_group("cli")


def uv() -> str:
    """The uv that `make setup` brought, or another one."""
    ours = ROOT / ".setup" / "bin" / "uv"
    found = str(ours) if ours.exists() else shutil.which("uv")
    if found is None:
        absent(ServerMissing("uv", "uv"))
    return found


def ran(*command: str, **options: object) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,  # type: ignore[call-overload]  # cwd and env
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `skep`, from a wheel and the pinned packages, and nothing else."""
    folder = tmp_path_factory.mktemp("install")
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("skep-*.whl")
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    ran(uv(), "venv", "-q", "--python", sys.executable, str(folder / "venv"), env=env)
    python = str(folder / "venv" / "bin" / "python")
    core = str(ROOT / "requirements" / "core.txt")
    install = (uv(), "pip", "install", "-q", "--python", python)
    ran(*install, "--require-hashes", "-r", core, env=env)
    ran(*install, "--no-deps", str(wheel), env=env)
    return folder / "venv" / "bin"


def environment(installed: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    kept.pop("PYTHONPATH", None)
    return {**kept, "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}"}


def first_screen() -> list[str]:
    """Commands of the README's first screen, without their comments."""
    screen = README.partition("## Install and try it")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", screen, re.DOTALL)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


def test_the_first_screen_names_every_way() -> None:
    """U8: a clone, an installed tool, a container."""
    commands = first_screen()
    assert {"make run", "uv tool install .", "skep demo"} <= set(commands)
    assert any(line.startswith("docker build -f deploy/Dockerfile") for line in commands)
    assert "`pipx install dist/skep-*.whl`" in README
    assert re.search(r"^run: setup", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_a_built_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    """U8: `skep demo` as installed; its hints name `skep`, which is on the PATH."""
    said = ran("skep", "demo", cwd=tmp_path, env=environment(installed))
    assert said.startswith("1000 accepted = 1000 done\n")
    assert "next: `skep demo break` kills" in said
    assert "`skep up` starts" in said


def test_hints_name_the_program_as_it_was_started(installed: Path, tmp_path: Path) -> None:
    """U8: by its name where the PATH has it, else by its path or as a module; with the folder
    that was named."""
    elsewhere = {**environment(installed), "PATH": "/usr/bin:/bin"}
    (tmp_path / "bin").symlink_to(installed)
    started = {
        "skep": environment(installed),
        "bin/skep": elsewhere,
        f"{installed}/skep": elsewhere,
        f"{installed}/python -m skep": elsewhere,
    }
    for program, env in started.items():
        done = subprocess.run(
            [*program.split(), "info", "--data", "none"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 6
        assert f"start one with `{program} up --data none`" in done.stderr, done.stderr
