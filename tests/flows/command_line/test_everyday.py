"""Small things of every day, as a user expects them (U2, U12)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.testing.polling import until_sync
from skep.testing.processes import QUICK, CenterProcess
from skep.wire.api.agents import Agents

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 60.0
ROOT = Path(__file__).parents[3]
SPIDER = """
import skep

class Tagged(skep.Spider):
    tag: str = "none"

    def start(self):
        yield f"{self.site}/page/1"

    def parse(self, response):
        yield {"tag": self.tag}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", "--pages=400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    jobs = tmp_path_factory.mktemp("jobs")
    (jobs / "tagged.py").write_text(SPIDER)
    env = {"SKEP_JOBS_FOLDER": str(jobs), "SKEP_JOBS_KEEP_EVERY": "0.1"}
    with CenterProcess(tmp_path_factory.mktemp("center"), env, with_agent=True) as running:
        yield running


def environment(data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, **QUICK, "SKEP_DATA": str(data), "NO_COLOR": "1"}


def typed(
    center: CenterProcess, *arguments: str, text: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SKEP, *arguments],
        input=text,
        cwd=folder,
        env=environment(center.folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def answer(center: CenterProcess, *arguments: str, text: str = "") -> Any:
    done = typed(center, *arguments, "--json", text=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def applied(center: CenterProcess, *documents: dict[str, Any]) -> None:
    done = typed(center, "job", "apply", "-", text=json.dumps(list(documents)))
    assert done.returncode == 0, done.stderr


def test_arguments_for_one_run(center: CenterProcess, site: str) -> None:
    """U12: `job run J -a tag=love` counts for that run, and the job stays as it is."""
    spider = {"path": "tagged.py", "arguments": {"site": site, "tag": "life"}}
    applied(center, {"name": "tagged", "spider": spider})
    for given, expected in ((("-a", "tag=love"), "love"), ((), "life")):
        view = answer(center, "job", "run", "tagged", "--wait", *given)
        items = typed(center, "data", "export", view["run"]["id"]).stdout
        assert json.loads(items) == {"tag": expected}
    applied(center, {"name": "plain", "requests": [f"{site}/page/1"]})
    refused = typed(center, "job", "run", "plain", "-a", "tag=love")
    assert (refused.returncode, "takes no arguments" in refused.stderr) == (2, True)
    wrong = typed(center, "job", "run", "tagged", "-a", "tag")
    assert (wrong.returncode, "NAME=VALUE" in wrong.stderr) == (2, True)


def test_a_job_is_turned_off_and_on(center: CenterProcess, site: str) -> None:
    """U12: without an editor, and what is off says how to turn it on."""
    applied(center, {"name": "switch", "requests": [f"{site}/page/1"]})
    done = typed(center, "job", "disable", "switch")
    assert done.stdout == "changed switch (revision 2): it is disabled\n"
    assert "unchanged switch (revision 2)" in typed(center, "job", "disable", "switch").stdout
    refused = typed(center, "job", "run", "switch")
    assert refused.returncode == 5
    hint = re.search(r"`(.* job enable switch)` enables it", refused.stderr)
    assert hint is not None, refused.stderr
    assert subprocess.run(
        shlex.split(hint[1]), env=environment(center.folder), cwd=None, check=True, timeout=PATIENCE
    )
    assert typed(center, "job", "run", "switch", "--wait").returncode == 0
    assert typed(center, "job", "enable", "nosuch").returncode == 3


def test_submit_can_finish_its_run(center: CenterProcess, site: str) -> None:
    """U12: a run that was made by submit need not stay open."""
    done = typed(center, "submit", "once", "-", "--new", "--finish", text=f"{site}/page/1\n")
    assert (done.returncode, "run once is finished" in done.stderr) == (0, True), done.stderr
    assert answer(center, "runs", "show", "once")["run"]["state"] == "finished"


def test_lines_that_are_known_make_no_speed_and_use_no_ids(
    center: CenterProcess, site: str
) -> None:
    """U12: sending 300 lines again ends at once, and the next request has the next id."""
    lines = "".join(f"{site}/page/{number}\n" for number in range(300))
    assert typed(center, "submit", "again", "-", "--new", "--wait", text=lines).returncode == 0
    newest = answer(center, "request", "ls", "--run", "again", "--limit", "1000")["items"][-1]["id"]
    done = typed(center, "submit", "again", "-", "--wait", text=lines)
    assert (done.returncode, "0 accepted, 300 known" in done.stdout) == (0, True)
    assert " · 0 p/s · " in done.stderr, done.stderr
    one = f"{site}/page/301\n"
    assert typed(center, "submit", "again", "-", "--wait", text=one).returncode == 0
    listed = answer(center, "request", "ls", "--run", "again", "--after", str(newest))["items"]
    assert [request["id"] for request in listed] == [newest + 1]


def test_apply_is_all_or_nothing(center: CenterProcess, site: str) -> None:
    """U12: a document that only the center refuses keeps the others out, too; jobs that name
    each other may stand in any order."""
    good = {"name": "whole-a", "requests": [f"{site}/page/1"]}
    bad = {"name": "whole-b", "spider": {"path": "nosuch.py"}}
    done = typed(center, "job", "apply", "-", text=json.dumps([good, bad]))
    assert (done.returncode, "nothing was applied" in done.stderr) == (2, True), done.stderr
    assert typed(center, "job", "show", "whole-a").returncode == 3
    after = {**good, "name": "whole-c", "schedule": {"after": ["whole-a"]}}
    applied(center, after, good)
    stale = [{**good, "note": "changed"}, {**after, "revision": 7}]
    done = typed(center, "job", "apply", "-", text=json.dumps(stale))
    assert done.returncode == 5
    assert answer(center, "job", "show", "whole-a")["kept"]["revision"] == 1


def test_an_output_that_exists_is_named_or_overwritten(
    center: CenterProcess, site: str, tmp_path: Path
) -> None:
    """U12: -o goes on with a file and says so, -O begins it anew."""
    (tmp_path / "tagged.py").write_text(SPIDER)
    run = ("run", "tagged.py", "-a", f"site={site}")
    first = typed(center, *run, "-o", "items.jsonl", folder=tmp_path)
    assert (first.returncode, "exists" in first.stderr) == (0, False), first.stderr
    second = typed(center, *run, "-o", "items.jsonl", folder=tmp_path)
    assert "items.jsonl exists: items are appended; -O items.jsonl overwrites it" in second.stderr
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == 2
    third = typed(center, *run, "-O", "items.jsonl", folder=tmp_path)
    assert (third.returncode, "exists" in third.stderr) == (0, False), third.stderr
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == 1
    refused = typed(center, *run, "-O", "items.jsonl", "--resume", folder=tmp_path)
    assert refused.returncode == 2
    assert typed(center, *run, "-O", "redis://127.0.0.1/0?key=a", folder=tmp_path).returncode == 2


def test_retry_follows_the_job_as_it_is_now(center: CenterProcess, site: str) -> None:
    """U2: the repaired revision is the default, the old one is a flag, the answer says which."""
    broken = "def run(uri):\n    raise ValueError('broken')\n"
    code = {"kind": "python", "code": broken}
    applied(center, {"name": "coded", "downloader": code, "requests": [f"{site}/page/1"]})
    view = answer_of_failed_run(center, "coded")
    run = view["run"]["id"]
    code["code"] = "def run(uri):\n    return b'repaired'\n"
    applied(center, {"name": "coded", "downloader": code, "requests": [f"{site}/page/1"]})
    old = typed(center, "failures", "retry", "--job", "coded", "--yes", "--old-revision")
    assert f"run {run} follows revision 1 of its job" in old.stdout, old.stderr
    assert settled(center, run)["dead"] == 1
    done = typed(center, "failures", "retry", "--job", "coded", "--yes")
    assert f"run {run} follows revision 2 of its job" in done.stdout, done.stderr
    assert settled(center, run)["done"] == 1


def answer_of_failed_run(center: CenterProcess, job: str) -> Any:
    done = typed(center, "job", "run", job, "--wait", "--json")
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


def settled(center: CenterProcess, run: str) -> Any:
    """The ledger of a run that is handed out again and ends again."""
    typed(center, "runs", "continue", run)
    return until_sync(
        lambda: answer(center, "runs", "show", run)["ledger"],
        lambda ledger: ledger["done"] + ledger["dead"] == ledger["accepted"],
        seconds=PATIENCE,
        step=0.1,
    )


def test_dead_agents_do_no_work(center: CenterProcess) -> None:
    """U12: the figures of the last heartbeat are not those of now."""
    from skep.cli.commands.fleet.agents import agents_table

    (line,) = msgspec.convert(answer(center, "agents"), Agents).items
    busy = msgspec.structs.replace(line.agent.vitals, active=7, rate=12.0)
    line.agent = msgspec.structs.replace(line.agent, vitals=busy)
    assert "  7  " in agents_table([line])
    line.alive = False
    dead = agents_table([line])
    assert ("  7  " in dead, "12/s" in dead, "dead" in dead) == (False, False, True)


def test_a_run_beside_a_center_that_stops_says_so(site: str, tmp_path: Path) -> None:
    """U12: `skep run` says that it starts a center of its own, and the next `skep up` names
    the process that has the folder."""
    data = tmp_path / "data"
    slow = SPIDER.replace("/page/1", "/slow?seconds=20")
    (tmp_path / "slow.py").write_text(slow)
    env = environment(data)
    first = subprocess.Popen(
        [*SKEP, "up", "--port", "0"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with first:
        assert first.stdout is not None
        while not first.stdout.readline().startswith(b"next"):
            assert first.poll() is None
        command = [*SKEP, "run", "slow.py", "-a", f"site={site}"]
        run = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
        with run:
            assert run.stderr is not None
            said = run.stderr.readline()
            first.send_signal(signal.SIGKILL)
            first.wait(PATIENCE)
            while " is gone; starting one in " not in said:
                said = run.stderr.readline()
                assert said
            wait_for_center(data, run.pid)
            again = subprocess.run(
                [*SKEP, "up", "--port", "0"], env=env, capture_output=True, text=True, check=False
            )
            run.kill()
    assert again.returncode == 2
    holder = rf"\(process \d+: center of skep run, process {run.pid}\)"
    assert re.search(rf"another center works in {re.escape(str(data))} {holder}", again.stderr)


def wait_for_center(data: Path, parent: int) -> None:
    until_sync(lambda: f"process {parent}" in (data / "center.lock").read_text(), seconds=PATIENCE)
