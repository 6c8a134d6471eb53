"""Habits that hold in every file: docstrings, names, nothing of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
#: One letter of each word stands in brackets, so that this file does not find itself.
FORBIDDEN_TEXT = {
    "the folder of a machine": r"(?<![\w.~<-])/(?:[r]oot|[h]ome|[w]ork|[U]sers)/\w",
    "a package registry": r"[p]ypi\.org|[p]ythonhosted|[n]pmjs\.|[a]rtifactory",
    "a package index setting": r"--(?:extra-)?[i]ndex-url\b",
}


def tracked() -> list[Path]:
    """Every file that is, or is about to be, part of the project."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def python_files(*folders: str) -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


def names_defined(tree: ast.AST) -> Iterator[str]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return (node.name for node in ast.walk(tree) if isinstance(node, kinds))


def words_of(name: str) -> set[str]:
    """`HostManager` and `host_manager` are both {host, manager}."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files("skep")
        if not re.search(r"[.!:]", ast.get_docstring(ast.parse(path.read_text())) or "")
    ]
    assert silent == []


def test_no_file_is_a_dumping_ground() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in tracked()
        for part in path.relative_to(ROOT).parts
        if words_of(Path(part).stem) & FORBIDDEN_WORDS
    ]
    assert found == []


def test_no_class_or_function_is_named_for_nothing() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files("skep")
        for name in names_defined(ast.parse(path.read_text()))
        if words_of(name) & FORBIDDEN_WORDS
    ]
    assert found == []


@pytest.mark.parametrize("what", FORBIDDEN_TEXT)
def test_nothing_in_the_tree_names(what: str) -> None:
    """What is committed works on every machine: no paths and no hosts of one of them."""
    pattern = re.compile(FORBIDDEN_TEXT[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_pickle_anywhere() -> None:
    """What others send is data, never code: nothing that can run it on loading."""
    dangerous = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    found = {
        str(path.relative_to(ROOT)): name
        for path in python_files("skep")
        for name in imports_of(path)
        if name.partition(".")[0] in dangerous
    }
    assert found == {}


def test_only_the_clock_asks_the_machine_for_the_time() -> None:
    """Time is an argument, so that tests and simulations can move it."""
    asks = re.compile(r"\btime\.time\(|\bdatetime\.now\(|\butcnow\(")
    allowed = {"skep/runtime/clock.py"}
    found = [
        name
        for path in python_files("skep")
        if (name := str(path.relative_to(ROOT))) not in allowed and asks.search(path.read_text())
    ]
    assert found == []


#: Scratch files of a child that runs user code: they live as long as the child.
SCRATCH = ("skep/downloaders/code/inside/", "skep/testing/")
#: These write no small file of a data folder: segments, packages, downloads and exports of any
#: size, the draft of an editor, the environment of a container; and the function itself.
OTHER_WRITERS = {
    "skep/agent/apps/container.py",
    "skep/archive/segments.py",
    "skep/cli/commands/jobs/job_files.py",
    "skep/cli/commands/operate/operation_start.py",
    "skep/cli/commands/results/data.py",
    "skep/jobs/apps/package_file.py",
    "skep/runtime/files.py",
    "skep/wire/client/center.py",
}
_WRITES = re.compile(
    r"(?<!formatter)\.write_(?:text|bytes)\(|O_TRUNC|fdopen\(\w+, [\"']w"
    r"|\.open\((?:\w+, )?[\"']w|\bopen\([^()]*, [\"']w"
)


def test_small_files_are_written_by_one_function() -> None:
    """R2: `runtime.files.write_durably`; anything else leaves half a file after a power cut."""
    files = {str(path.relative_to(ROOT)): path.read_text() for path in python_files("skep")}
    found = {
        name
        for name, text in files.items()
        if _WRITES.search(text) and not name.startswith(SCRATCH)
    }
    assert found == OTHER_WRITERS
