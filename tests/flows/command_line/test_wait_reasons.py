"""Commands that wait say why requests failed, and what the run waits for (U4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 60.0
SPIDER = """
import skep

class Lost(skep.Spider):
    start_urls = ["http://run.invalid/a", "http://run.invalid/b"]

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    env = {"SKEP_JOBS_KEEP_EVERY": "0.1"}
    with CenterProcess(tmp_path_factory.mktemp("center"), env, with_agent=True) as running:
        yield running


def typed(
    center: CenterProcess, *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return subprocess.run(
        [*SKEP, *arguments],
        input=text,
        env={**kept, **QUICK, "SKEP_DATA": str(center.folder), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def urls(host: str) -> list[str]:
    """At a host of each test, so that none meets one that cools since another. The reserved
    top-level name has no address, with or without a network."""
    return [f"http://{host}/a", f"http://{host}/b"]


def one_line(text: str) -> str:
    return " ".join(text.split())


def assert_named(done: subprocess.CompletedProcess[str], host: str) -> None:
    said = one_line(done.stderr)
    assert f"2 x network at {host}: " in said, done.stderr
    assert "ould not resolve host" in said, done.stderr


def test_submit_names_the_failure(center: CenterProcess) -> None:
    """U4: the failure stands on the line, and not only a number."""
    done = typed(
        center, "submit", "lost", "-", "--new", "--wait", text="\n".join(urls("submit.invalid"))
    )
    assert done.returncode == 1
    assert_named(done, "submit.invalid")


def test_job_run_names_the_failure(center: CenterProcess) -> None:
    """U4: as `submit --wait`."""
    settings = {"robots": False, "retries": 0}
    document = {"name": "lost-job", "requests": urls("job.invalid"), "settings": settings}
    assert typed(center, "job", "apply", "-", text=json.dumps(document)).returncode == 0
    done = typed(center, "job", "run", "lost-job", "--wait")
    assert done.returncode == 1
    assert_named(done, "job.invalid")


def test_run_names_what_it_waits_for_and_the_failure(center: CenterProcess) -> None:
    """U4: while nothing moves a note names the host, once; the end names the failure."""
    file = center.folder / "lost.py"
    file.write_text(SPIDER)
    done = typed(center, "run", str(file))
    assert done.returncode == 1
    assert_named(done, "run.invalid")
    assert done.stderr.count("waiting: ") == 1, done.stderr
    assert "run.invalid" in one_line(done.stderr.partition("waiting: ")[2])[:80]


def test_why_names_the_failure_behind_robots_txt(center: CenterProcess) -> None:
    """U5: a request that waits for robots.txt of a host without an address says so."""
    arguments = ("submit", "robots", "-", "--new", "--set", "retries=5")
    assert typed(center, *arguments, text="http://why.invalid/a\n").returncode == 0
    deadline = time.monotonic() + PATIENCE
    said = ""
    while "robots.txt could not be fetched" not in said:
        assert time.monotonic() < deadline, said
        said = one_line(typed(center, "why", "robots").stdout)
    assert "Could not resolve host: why.invalid" in said
