"""Child processes of a bench: they print one JSON object as their last line.

A child that fails ends the benchmark and shows its output. Peers have separate environments under
bench/.peers, made by uv and never mixed with ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.figures import Wrong

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "bench" / ".peers"
CHILD_SECONDS = 300.0


def own(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of this repository with our Python."""
    return answer([sys.executable, "-m", module, *arguments])


def answer(command: Sequence[str], seconds: float = CHILD_SECONDS) -> dict[str, Any]:
    """The JSON object on the last line of the command's output."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False
    )
    if done.returncode:
        raise Wrong(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


class Peer:
    """Packages of another project, pinned, in a separate folder."""

    def __init__(self, name: str, packages: Sequence[str]) -> None:
        self.name = name
        self.packages = tuple(packages)
        self._folder = PEERS / name

    @property
    def python(self) -> str:
        return str(self._folder / "bin" / "python")

    def prepare(self) -> None:
        """Install what is missing; no effect if the same was installed before."""
        stamp = self._folder / "installed.txt"
        wanted = "\n".join(self.packages)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        uv = find_uv()
        _quietly([uv, "venv", "-q", "--clear", "--python", sys.executable, str(self._folder)])
        _quietly([uv, "pip", "install", "-q", "--python", self.python, *self.packages])
        stamp.write_text(wanted)

    def run(self, driver: str, *arguments: str) -> dict[str, Any]:
        """Run bench/peers/DRIVER.py with the peer's Python, without our packages."""
        script = str(ROOT / "bench" / "peers" / f"{driver}.py")
        return answer([self.python, "-I", script, *arguments])


def find_uv() -> str:
    """The uv that `make setup` installed, or any other."""
    ours = ROOT / ".setup" / "bin" / "uv"
    found = str(ours) if ours.exists() else shutil.which("uv")
    if found is None:
        raise Wrong("uv is not installed; run `make setup` first")
    return found


def _quietly(command: Sequence[str]) -> None:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise Wrong(f"{' '.join(command)}:\n{done.stderr[-2000:]}")


def versions(*packages: str) -> str:
    """`a 1.2, b 3.4` for packages of our own environment."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages)
