"""What users import, subclass and start, as shown in docs and examples. Read by `compatibility`.

A path stays in the record even if no page shows it: code that uses it exists.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import skep
from skep.model import downloader_kinds
from skep.model.fleet import strategy_traits

ROOT = Path(__file__).parent.parent
#: Folders and files that show users what to write.
SHOWN = ("docs", "examples", "README.md", "CONTRIBUTING.md", "deploy", ".ci", "Makefile")
TEMPLATES = Path(skep.__file__).parent
_FROM = re.compile(r"^[ >]*from (skep(?:\.\w+)*) import (\([^)]*\)|[^\n#]+)", re.MULTILINE)
_IMPORT = re.compile(r"^[ >]*import (skep(?:\.\w+)*)\b", re.MULTILINE)
_INLINE = re.compile(r"`(skep(?:\.\w+)+)`")
_STARTED = re.compile(r"python3? -m (skep(?:\.\w+)*)")
#: By kind of parameter.
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def shown_paths() -> dict[str, str]:
    """`module` or `module:name`, each with its parameters if it can be called."""
    found = {path for text in _pages() for path in _paths(text)}
    found |= {f"skep:{name}" for name in skep.__all__}
    return {path: parameters(resolve(path)) for path in sorted(found)}


def _pages() -> Iterator[str]:
    for name in SHOWN:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.read_text(errors="replace")
    for template in sorted(TEMPLATES.rglob("templates/*.txt")):
        yield template.read_text()


def _paths(text: str) -> Iterator[str]:
    yield from _IMPORT.findall(text)
    for module, names in _FROM.findall(text):
        yield module
        for name in names.strip("() \n").replace("\n", " ").split(","):
            if word := name.partition(" as ")[0].strip():
                yield f"{module}:{word}"
    yield from (path for path in _INLINE.findall(text) if resolve(path) is not None)


def resolve(path: str) -> Any:
    """The module or the object; None if there is none."""
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        return getattr(found, name) if name else found
    except (ImportError, AttributeError):
        return None


def parameters(found: Any) -> str:
    """`(folder, env=, *, pages=)`; defaults and annotations may change."""
    if not (inspect.isclass(found) or inspect.isroutine(found)) or _is_only_a_type(found):
        return ""
    try:
        given = list(inspect.signature(found).parameters.values())
    except ValueError:
        return ""
    return f"({', '.join(_parameters(given))})"


def _is_only_a_type(found: Any) -> bool:
    """Enums, protocols and other types that are not called with our parameters."""
    return inspect.isclass(found) and (
        issubclass(found, Enum) or getattr(found, "_is_protocol", False)
    )


def _parameters(given: list[inspect.Parameter]) -> Iterator[str]:
    named_only = False
    for number, one in enumerate(given):
        if one.kind is one.KEYWORD_ONLY and not named_only:
            named_only = True
            yield from () if any(each.kind is one.VAR_POSITIONAL for each in given) else ("*",)
        star = _STARS.get(one.kind, "")
        yield star + one.name + ("" if one.default is one.empty else "=")
        last = number + 1 == len(given) or given[number + 1].kind is not one.POSITIONAL_ONLY
        if one.kind is one.POSITIONAL_ONLY and last:
            yield "/"


def members() -> dict[str, Any]:
    """The public members of the classes for spiders."""
    return {name: _members(getattr(skep, name)) for name in skep.__all__}


def _members(kind: type) -> dict[str, str]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    names |= set(inspect.get_annotations(kind))
    return {
        name: parameters(getattr(kind, name, None)) or "value"
        for name in sorted(names)
        if not name.startswith("_") and not hasattr(object, name)
    }


def started() -> dict[str, Any]:
    """Programs: scripts, targets of `python -m`, groups of entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = {target for text in _pages() for target in _STARTED.findall(text)} | {"skep"}
    return {
        "scripts": sorted(project["scripts"]),
        "extras": sorted(project["optional-dependencies"]),
        "python -m": sorted(targets),
        "entry-point groups": [downloader_kinds.GROUP, strategy_traits.GROUP],
    }


def tried(paths: list[str]) -> dict[str, dict[str, Any]]:
    """Import each path twice: its parameters, and the warnings about retired paths."""
    return {path: _tried(path) for path in paths}


def _tried(path: str) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = (resolve(path), resolve(path))[0]
    said = [str(one.message) for one in seen if issubclass(one.category, DeprecationWarning)]
    return {
        "found": found is not None,
        "parameters": parameters(found),
        "warnings": [text for text in said if "skep" in text],
    }


def runs_as_a_program(target: str) -> bool:
    """Whether `python -m target` does anything."""
    found = importlib.util.find_spec(target)
    if found is not None and found.submodule_search_locations:
        found = importlib.util.find_spec(f"{target}.__main__")
    return found is not None and "__main__" in Path(found.origin or "").read_text()


if __name__ == "__main__":  # in a separate process: nothing is imported yet
    json.dump(tried(json.load(sys.stdin)), sys.stdout)
