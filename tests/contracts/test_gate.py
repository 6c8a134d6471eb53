"""Nothing skips a test but the gate, `skep.testing.needs`, which is tried in runs of its own; and
nothing waits by hand."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.testing import needs

ROOT = Path(__file__).parents[2]
GATE = Path("skep/testing/needs.py")
SKIPS = {"skip", "skipif", "importorskip", "xfail", "exit", "skipIf", "skipUnless", "skipTest"}
SWITCHES = {"CI", "SKEP_TESTS_NEED_SERVERS"}
LEFT_OUT = {"collect_ignore", "collect_ignore_glob", "pytest_ignore_collect", "__test__"}
#: Pytest without the plug-ins that cost time at every start.
LEAN = [sys.executable, "-m", "pytest", "-q", "-p", "skep.testing.needs_plugin"]
LEAN += ["-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:hypothesispytest"]
LEAN += ["-p", "no:schemathesis", "-p", "no:xdist"]
TESTS = """
import pytest
from skep.testing import needs
from skep.testing.private import NotPermitted, ServerMissing

@pytest.fixture
def server():
    raise ServerMissing("honeyd", "honey-server")

@pytest.fixture
def disk():
    raise NotPermitted("no small disk")

def test_server(server): ...
def test_server_in_a_test():
    raise ServerMissing("honeyd", "honey-server")
def test_disk(disk): ...
def test_disk_in_a_test():
    raise NotPermitted("no small disk")

@pytest.mark.needs("bwrap")
def test_box(): ...

def test_plain(): ...
"""
#: A bubblewrap that is installed and does not work.
BROKEN = "#!/bin/sh\necho 'bwrap: no namespaces' >&2\nexit 1\n"


def skips_of(code: str) -> Iterator[str]:
    """What of a file may leave a test out without the gate."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(value=ast.Name("pytest" | "mark" | "unittest" | "self"), attr=name):
                yield from {name} & SKIPS
            case ast.Attribute(value=ast.Attribute(attr="mark"), attr=name):
                yield from {name} & SKIPS
            case ast.ImportFrom(module="pytest" | "_pytest.outcomes", names=names):
                yield from {alias.name for alias in names} & SKIPS
            case ast.ImportFrom(module="unittest") | ast.Import(names=[ast.alias("unittest")]):
                yield "unittest"
            case ast.Subscript(slice=ast.Constant(name)) | ast.Call(args=[ast.Constant(name), *_]):
                yield from {str(name)} & SWITCHES
            case ast.Name(name) | ast.FunctionDef(name=name):
                yield from {name} & LEFT_OUT


def test_nothing_skips_but_the_gate() -> None:
    """3.6: no test is left out without its line and its number at the end of a run."""
    found = {
        str(file.relative_to(ROOT)): names
        for folder in ("tests", "skep/testing", "examples")
        for file in (ROOT / folder).rglob("*.py")
        if file != ROOT / GATE and (names := sorted(skips_of(file.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "pytest.skip('no')",
        "pytestmark = pytest.mark.skip",
        "@pytest.mark.skipif(True, reason='no')\ndef test(): ...",
        "@mark.skipif(True, reason='no')\ndef test(): ...",
        "redis = pytest.importorskip('redis')",
        "from pytest import skip",
        "from _pytest.outcomes import importorskip as wanted",
        "pytest.param(1, marks=pytest.mark.xfail)",
        "import unittest",
        "from unittest import SkipTest",
        "if os.environ.get('CI'): ...",
        "if os.environ['SKEP_TESTS_NEED_SERVERS']: ...",
        "collect_ignore = ['test_of_kafka.py']",
    ],
)
def test_every_way_to_skip_is_found(code: str) -> None:
    assert list(skips_of(code)) != []


def test_what_may_be_skipped_by_make_test_is_listed() -> None:
    """U14: an addition is a reviewed line, here and there."""
    assert {
        *("podman", "buildah", "runc", "bubblewrap", "iproute2", "systemd"),
    } == needs.PERMISSION_PACKAGES
    assert set(needs.PROBES) == {"bwrap", "root", "mount namespace"}


def outcome(tmp_path: Path, **environment: str) -> str:
    """What pytest says of `TESTS` where bubblewrap is installed and does not work."""
    (tmp_path / "test_it.py").write_text(TESTS)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bwrap").write_text(BROKEN)
    (programs / "bwrap").chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CI", "SKEP_", "PYTEST_"))}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    options = ["--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path / "test_it.py")]
    done = subprocess.run(
        [*LEAN, *options],
        cwd=ROOT,
        env={**kept, **environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("environment", "result"),
    [
        ({}, "1 passed, 5 skipped"),
        ({"SKEP_TESTS_NEED_SERVERS": "1"}, "1 failed, 1 passed, 3 skipped, 1 error"),
        ({"CI": "true"}, "2 failed, 1 passed, 3 errors"),
    ],
)
def test_what_is_absent_skips_or_fails(
    tmp_path: Path, environment: dict[str, str], result: str
) -> None:
    """3.6: what a test or a fixture lacks is decided in one place, the marker's needs too; a
    program that is installed and does not work never passes silently."""
    said = outcome(tmp_path, **environment)
    assert result in said, said[-3000:]
    assert "no namespaces" in said
    assert "honeyd is not installed" in said
    skipped = {"": 5, "1": 3, "true": 0}["".join(environment.values())]
    assert f"not tried on this machine: {skipped} tests" in said, said[-3000:]


def test_waiting_is_written_once() -> None:
    """3.4: `skep.testing.polling` waits for what has no event; a copy of it says nothing of what
    it waited for."""
    copied = re.compile(
        r"^(async )?def (until|until_sync|wait_until|eventually)\b|# noqa: ASYNC110", re.MULTILINE
    )
    found = {
        str(file.relative_to(ROOT))
        for folder in ("tests", "skep/testing")
        for file in (ROOT / folder).rglob("*.py")
        if copied.search(file.read_text())
    }
    assert found - {"tests/contracts/test_gate.py"} == {"skep/testing/polling.py"}
