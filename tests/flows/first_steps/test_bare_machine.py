"""The suite on a machine that permits little: bubblewrap is installed and cannot work, podman
and unshare are absent, as in a plain container. Tests of something else than isolation pass;
tests of isolation are skipped and listed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from skep.testing.needs import permissions_are_needed, servers_are_needed

ROOT = Path(__file__).parents[3]
ABSENT = {"bwrap", "podman", "buildah", "runc", "unshare"}
REFUSAL = "No permissions to create new namespace"
SAMPLE = (
    "tests/flows/jobs/test_generators.py::test_python_yields_uris_dicts_and_requests",
    "tests/flows/jobs/test_generators.py::test_shell_prints_lines",
    "tests/flows/requests/test_why_generators.py::test_a_run_whose_generator_failed",
    "tests/flows/jobs/test_run_control.py::test_generators_end_and_begin_again",
    "tests/flows/jobs/test_jobs.py::test_a_spider_sees_no_secret_of_its_center",
    "tests/failures/storage/test_archive_crash.py::test_a_full_volume_keeps_what_it_took",
    "tests/unit/agent/test_container_engines.py::test_the_podman_of_this_machine",
)
#: Tests that count processes, and tests that start servers of their own.
SIDE_BY_SIDE = (
    "tests/flows/downloads/test_content_rules.py",
    "tests/flows/downloads/test_redial.py",
)


@pytest.fixture
def bare_path() -> Iterator[Path]:
    """Every program of this machine but those that isolate, and a bubblewrap that fails."""
    with TemporaryDirectory(prefix="skep-bin-") as name:
        Path(name).chmod(0o755)  # servers run as another user
        fill(Path(name))
        yield Path(name)


def fill(folder: Path) -> None:
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name not in ABSENT and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    (folder / "bwrap").write_text(f"#!/bin/sh\necho 'bwrap: {REFUSAL}' >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)


def test_the_suite_passes_where_the_kernel_permits_little(bare_path: Path, tmp_path: Path) -> None:
    """U14: a sample of it, with the servers demanded as in `make test`."""
    kept = {k: v for k, v in os.environ.items() if k != "CI" and not k.startswith("SKEP_")}
    environment = {**kept, "PATH": str(bare_path), "SKEP_TESTS_NEED_SERVERS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'inner'}", *SAMPLE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "5 passed, 3 skipped" in done.stdout, done.stdout[-2000:]
    listed = done.stdout.partition("not tried on this machine: 3 tests")[2]
    for reason in (REFUSAL, "podman is not installed", "unshare is not installed"):
        assert reason in listed, listed


def test_ci_demands_everything() -> None:
    """U14: `.ci/run` sets CI=true, under which nothing is skipped."""
    assert "export CI=true" in (ROOT / ".ci" / "run").read_text()


def test_ci_fails_what_the_machine_withholds(bare_path: Path, tmp_path: Path) -> None:
    """U14: with CI=true the isolation test fails where it would be skipped at a desk."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SKEP_")}
    test = "tests/failures/jobs/test_spider_boxes.py::test_a_spider_cannot_leave_its_box"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'inner'}"],
        cwd=ROOT,
        env={**kept, "PATH": str(bare_path), "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, REFUSAL in done.stdout) == (1, True), done.stdout[-2000:]


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    """U14: tests that count processes and start servers do not notice those of another run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKEP_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SIDE_BY_SIDE]
    runs = [
        subprocess.Popen(
            [*command, f"--basetemp={tmp_path / name}"],
            cwd=ROOT,
            env=kept,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "other")
    ]
    for run in runs:
        said, _ = run.communicate()
        assert run.returncode == 0, said[-4000:]


@pytest.mark.parametrize(
    ("environment", "servers", "permissions"),
    [
        ({}, False, False),
        ({"SKEP_TESTS_NEED_SERVERS": "1"}, True, False),
        ({"CI": "true"}, True, True),
        ({"CI": "false"}, False, False),
    ],
)
def test_what_is_demanded(environment: dict[str, str], servers: bool, permissions: bool) -> None:
    """U14: `make test` demands what it installs, CI demands everything."""
    assert servers_are_needed(environment) is servers
    assert permissions_are_needed(environment) is permissions
