"""The demos end by themselves, and what they say is counted by the site, not by hope."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("demo")


def demo(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skep", "demo", *arguments],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_demo_crawls_its_site_and_ends() -> None:
    done = demo("--latency", "0.01")
    assert done.returncode == 0, done.stderr
    ledger, figures, *following = done.stdout.splitlines()
    assert ledger == "1000 accepted = 1000 done"
    assert figures.startswith("1000 pages in ")
    assert "skep up` " in following[-1]
    assert "1000/1000" in done.stderr
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    # Where the machine isolates no user code, the agent says so; the demo runs none.
    assert [line for line in warnings if "bubblewrap" not in line] == []


def test_the_demo_keeps_what_it_did_in_a_folder(tmp_path: Path) -> None:
    done = demo("--pages", "50", "--latency", "0", "--data", str(tmp_path / "data"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ledger"]["done"] == 50
    assert list((tmp_path / "data" / "archive").glob("*.warc.zst"))


def test_the_broken_demo_loses_nothing() -> None:
    """C3, fault 22: kill -9 of an agent in the middle; its blocks go to the other one."""
    quick = {"SKEP_CENTER_HEARTBEAT_EVERY": "1", "SKEP_CENTER_ALIVE_AFTER": "4"}
    done = demo("break", "--pages", "300", "--latency", "0.2", "--json", **quick)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["accepted"], verdict["done"], verdict["lost"]) == (300, 300, 0)
    assert verdict["unaccounted"] == 0
    assert verdict["blocks_returned"] >= 1
    assert 0 <= verdict["repeated"] <= 100
    assert "kill -9" in done.stderr
    assert "agent first is dead" in done.stderr
    assert "blocks were returned for second" in done.stderr
