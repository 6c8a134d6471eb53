"""Keeps `requirements/*.txt` consistent with `pyproject.toml`. Run by make, locally and in CI.

`write` resolves and pins every package with its hashes; `check` compares the fingerprint of the
requirements with the one in the first line of each file, without any network.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

FOLDER = Path("requirements")
COMPILE = ("--generate-hashes", "--no-emit-index-url", "--no-header", "--universal", "--quiet")
#: Extras for centers with servers; the image has them (deploy/Dockerfile).
SERVER = ("mysql", "postgres", "redis", "s3")
#: The sources of each file; the others use the versions of core.
SOURCES = {
    "uv": ("requirements/uv.in",),
    "build": ("requirements/build.in",),
    "coverage": ("requirements/coverage.in",),
    "core": ("pyproject.toml",),
    "server": (
        "pyproject.toml",
        *(word for extra in SERVER for word in ("--extra", extra)),
        *("-c", "requirements/core.txt"),
    ),
    "dev": ("pyproject.toml", "--all-extras", "--group", "dev", "-c", "requirements/core.txt"),
}


def fingerprint(name: str) -> str:
    """A hash over everything that determines the content of a file."""
    if name in {"uv", "build", "coverage"}:
        asked: object = (FOLDER / f"{name}.in").read_text()
    else:
        project = tomllib.loads(Path("pyproject.toml").read_text())
        table = project["project"]
        asked = [table["requires-python"], table["dependencies"]]
        if name == "server":
            asked = [asked, [table["optional-dependencies"][extra] for extra in SERVER]]
        if name == "dev":
            asked = [asked, table["optional-dependencies"], project["dependency-groups"]]
    return hashlib.sha256(json.dumps([asked, SOURCES[name]]).encode()).hexdigest()[:16]


def first_line(name: str) -> str:
    return f"# Made by `make requirements`; fingerprint {fingerprint(name)}"


def write(uv: str, *options: str) -> None:
    """Resolve again; versions stay the same without the option `--upgrade`."""
    for name, sources in SOURCES.items():
        target = FOLDER / f"{name}.txt"
        command = [uv, "pip", "compile", *COMPILE, "--python-version", "3.11", *options]
        subprocess.run(  # noqa: S603 - every argument is written here or given to make
            [*command, *sources, "-o", str(target)], check=True, stdout=subprocess.DEVNULL
        )
        target.write_text(f"{first_line(name)}\n{target.read_text()}")


def stale() -> list[str]:
    """Files whose sources have changed."""
    return [
        f"{name}.txt"
        for name in SOURCES
        if (FOLDER / f"{name}.txt").read_text().partition("\n")[0] != first_line(name)
    ]


def main(arguments: list[str]) -> int:
    if arguments[0] == "write":
        write(*arguments[1:])
        return 0
    if found := stale():
        sys.stderr.write(f"out of date with pyproject.toml: {found}; run `make requirements`\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
