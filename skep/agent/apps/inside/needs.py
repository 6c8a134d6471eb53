"""Finds wheels that the wheels of a folder still need. Run by the Python of a venv.

It reads metadata and executes nothing of a wheel. A requirement with a URL is refused: pip
would download it from there, and build it when it is not a wheel.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

METADATA_BYTES = 2**20


def metadata(wheel: Path) -> Any:
    """Name, version and requirements of a wheel; raises ValueError."""
    with zipfile.ZipFile(wheel) as archive:
        names = [
            entry
            for entry in archive.infolist()
            if entry.filename.endswith(".dist-info/METADATA") and entry.filename.count("/") == 1
        ]
        if len(names) != 1 or names[0].file_size > METADATA_BYTES:
            raise ValueError(f"{wheel.name} has no METADATA")
        with archive.open(names[0]) as file:
            text = file.read(METADATA_BYTES).decode("utf-8", "replace")
    return HeaderParser().parsestr(text)


class UrlRequired(ValueError):
    """A wheel requires a URL."""


def look(folder: Path) -> dict[str, Any]:
    """{"missing": wheels to download, "stale": wheels that do not match}; raises ValueError."""
    wheels = {path: metadata(path) for path in sorted(folder.glob("*.whl"))}
    have = {canonical(about["Name"] or ""): path for path, about in wheels.items()}
    missing: list[str] = []
    stale: list[str] = []
    for name, needs in wanted(wheels).items():
        found = have.get(name)
        if found is not None and all(_fits(need, wheels[found]["Version"]) for need in needs):
            continue
        bounds = sorted({str(need.specifier) for need in needs if str(need.specifier)})
        missing.append(f"{name}{','.join(bounds)}")
        if found is not None:
            stale.append(found.name)
    return {"missing": missing, "stale": stale}


def wanted(wheels: dict[Path, Any]) -> dict[str, list[Any]]:
    """Requirements that apply here, by name; raises UrlRequired."""
    extras: dict[str, set[str]] = {}
    found: dict[str, list[Any]] = {}
    for _ in range(len(wheels) + 1):  # extras of one wheel can require extras of another
        found = {}
        for path, about in wheels.items():
            own = extras.get(canonical(about["Name"] or ""), set())
            for need in requirements(path, about):
                if _applies(need, own):
                    name = canonical(need.name)
                    found.setdefault(name, []).append(need)
                    extras.setdefault(name, set()).update(need.extras)
    return found


def requirements(path: Path, about: Any) -> list[Any]:
    """All requirements of one wheel; raises UrlRequired."""
    # From pip, which is in every venv: no other package is needed here.
    from pip._vendor.packaging.requirements import (  # type: ignore[import-not-found]  # not here
        Requirement,
    )

    found = [Requirement(text) for text in about.get_all("Requires-Dist", [])]
    for need in found:
        if need.url:
            raise UrlRequired(f"{path.name} requires a URL: {need.name}")
    return found


def canonical(name: str) -> str:
    """The canonical spelling of a project name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _applies(need: Any, extras: set[str]) -> bool:
    if need.marker is None:
        return True
    return any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _fits(need: Any, version: str) -> bool:
    return bool(need.specifier.contains(version, prereleases=True))


if __name__ == "__main__":
    try:
        said = look(Path(sys.argv[1]))
    except UrlRequired as error:
        said = {"problem": str(error)[:500]}
    except Exception as error:  # noqa: BLE001 - every problem of a wheel becomes a message
        said = {"problem": f"cannot read a wheel: {type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(said))
