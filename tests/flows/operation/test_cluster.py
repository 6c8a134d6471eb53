"""`skep cluster dev` as people use it: a database, Redis, centers and agents by one command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skep.testing.cluster import Cluster
from skep.testing.polling import until_sync
from skep.testing.site import DemoSite

pytestmark = pytest.mark.xdist_group("cluster")
SECONDS = 60.0
PAGES = 40


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, "NO_COLOR": "1", **more}


def command(folder: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "skep", "cluster", "dev", "--folder", str(folder), *flags]


@contextmanager
def cluster(folder: Path, *flags: str) -> Iterator[dict[str, Any]]:
    """What it printed when it was ready; ended by Ctrl-C."""
    with subprocess.Popen(
        command(folder, "--json", *flags),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline() or "{}")
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said


def skep(where: dict[str, Any], *arguments: str, given: str = "") -> str:
    """A command with the addresses and the token that the cluster has printed."""
    reach = {"SKEP_CENTER": ",".join(where["centers"]), "SKEP_TOKEN_FILE": where["token_file"]}
    done = subprocess.run(
        [sys.executable, "-m", "skep", *arguments],
        env=environment(**reach),
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pid_of(where: dict[str, Any], name: str) -> int:
    return next(int(place["pid"]) for place in where["processes"] if place["name"] == name)


def until_restarted(folder: Path, times: int) -> None:
    """A center says in its log each time that it is open."""
    until_sync(
        lambda: (folder / "server.log").read_text().count(" is open on "),
        lambda count: count >= times,
        seconds=SECONDS,
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own: PostgreSQL, which does not run as root, could not reach it."""
    with tempfile.TemporaryDirectory(prefix="skep-cluster-") as name:
        Path(name).chmod(0o711)
        yield Path(name) / "here"


@pytest.fixture
async def site() -> AsyncIterator[DemoSite]:
    async with DemoSite(pages=PAGES) as running:
        yield running


def urls(site: DemoSite) -> str:
    return "\n".join(f"{site.url}/page/{number}" for number in range(PAGES))


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--mysql",), marks=pytest.mark.slow)], ids=["postgres", "mariadb"]
)
async def test_a_cluster_works_loses_a_center_and_goes_on_with_its_data(
    folder: Path, site: DemoSite, flags: tuple[str, ...]
) -> None:
    """Fault 15: one command for all of it; kill -9 of the center in use is not noticed by the
    next command; the same folder has the same data and the same addresses."""

    def first_life() -> dict[str, Any]:
        with cluster(folder, "--agents", "1", *flags) as where:
            names = [place["name"] for place in where["processes"]]
            assert names[1:] == ["redis", "center-1", "center-2", "agent-1"]
            skep(where, "submit", "first", "--new", "--wait", "-", given=urls(site))
            os.kill(pid_of(where, "center-1"), signal.SIGKILL)
            assert json.loads(skep(where, "info", "--json"))["ledger"]["ledger"]["done"] == PAGES
            until_restarted(folder / "center-1", 2)
            return where

    def second_life(before: dict[str, Any]) -> None:
        with cluster(folder, "--centers", "1", "--agents", "0", *flags) as where:
            assert where["centers"] == before["centers"][:1]
            assert json.loads(skep(where, "info", "--json"))["ledger"]["ledger"]["done"] == PAGES
            second = subprocess.run(
                command(folder), env=environment(), capture_output=True, text=True, check=False
            )
            assert (second.returncode, "another cluster runs in" in second.stderr) == (1, True)

    await asyncio.to_thread(second_life, await asyncio.to_thread(first_life))


def test_settings_of_the_environment_hold_but_for_what_is_the_clusters_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive in S3 can be tried; where database and Redis are, the cluster says."""
    given = "s3://bucket/folder?endpoint=http://127.0.0.1:1"
    assert Cluster(folder).environment()["SKEP_ARCHIVE_URL"] == str(folder / "archive")
    monkeypatch.setenv("SKEP_ARCHIVE_URL", given)
    monkeypatch.setenv("SKEP_STORE_URL", "sqlite:///elsewhere")
    held = Cluster(folder).environment()
    assert held["SKEP_ARCHIVE_URL"] == given
    assert held["SKEP_STORE_URL"].startswith("postgresql://")


def test_a_missing_server_is_named_with_its_package(folder: Path) -> None:
    done = subprocess.run(
        command(folder),
        env={**environment(), "PATH": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "error: redis-server is not installed; try: apt-get install redis-server" in done.stderr
