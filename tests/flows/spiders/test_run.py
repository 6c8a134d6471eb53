"""`skep run` as people use it: real processes, real signals, a real site."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from skep.cli.commands.crawl.spider_progress import SpiderProgress, figures
from skep.spiders.driving.stats import Stats
from skep.testing.clock import ManualClock
from skep.testing.polling import until_sync
from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 60.0
PAGES = 60
SPIDERS = '''
import time
from pathlib import Path

import skep


class Pages(skep.Spider):
    """Every page, once."""

    url: str
    wait: float = 0.0

    def start(self):
        yield f"{self.url}/page/0"

    def parse(self, response):
        time.sleep(self.wait)
        if self.wait:
            Path("began").touch()
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()


class Broken(skep.Spider):
    def start(self):
        raise RuntimeError("no idea where to begin")


class Raising(Pages):
    def parse(self, response):
        raise ValueError("what is this?")


class Hanging(Pages):
    def parse(self, response):
        print("hanging", flush=True)
        while True:
            time.sleep(0.01)
'''


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", f"--pages={PAGES}", "--latency=0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    with CenterProcess(tmp_path_factory.mktemp("center"), with_agent=True) as running:
        yield running


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with some spiders."""
    (tmp_path / "spiders.py").write_text(SPIDERS)
    return tmp_path


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, **QUICK, "NO_COLOR": "1"}


def run(desk: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SKEP, "run", *arguments],
        cwd=desk,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def started(desk: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SKEP, "run", *arguments],
        cwd=desk,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def at(center: CenterProcess) -> list[str]:
    return ["--center", center.url, "--token-file", str(center.folder / "admin.token")]


def items_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_alone_in_a_terminal(desk: Path, site: str) -> None:
    """R1: one command brings a center and an agent, crawls, and leaves the items in a file."""
    asked = ("spiders.py:Pages", "-a", f"url={site}", "-o", "items.jsonl", "--run", "first")
    done = run(desk, *asked, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["reason"], summary["pages"], summary["items"]) == ("finished", PAGES, PAGES)
    assert summary["ledger"]["accepted"] == summary["ledger"]["done"] == PAGES
    assert summary["outputs"][0]["items"] == PAGES
    assert sorted(item["url"] for item in items_of(desk / "items.jsonl")) == sorted(
        f"{site}/page/{number}" for number in range(PAGES)
    )
    assert f"{PAGES} accepted = {PAGES} done" in done.stderr
    assert "items    60 into" in done.stderr


def test_a_name_is_used_once_and_a_finished_run_has_nothing_left(
    desk: Path, site: str, center: CenterProcess
) -> None:
    asked = ("spiders.py:Pages", "-a", f"url={site}", "-o", "items.jsonl", *at(center))
    asked = (*asked, "--run", "used")
    assert run(desk, *asked).returncode == 0
    again = run(desk, *asked)
    assert again.returncode == 5, again.stderr
    assert "--resume used" in again.stderr
    resumed = run(desk, *asked[:-2], "--resume", "used", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["pages"] == 0
    assert len(items_of(desk / "items.jsonl")) == PAGES


def test_ctrl_c_pauses_and_the_printed_command_goes_on(
    desk: Path, site: str, center: CenterProcess
) -> None:
    """R1: the run is `paused`, and nothing is lost or told twice."""
    asked = ["spiders.py:Pages", "-a", f"url={site}", "-a", "wait=0.05", "-o", "items.jsonl"]
    asked += at(center)
    with started(desk, *asked, "-s", "block_size=5", "--json") as spider:
        until_sync((desk / "began").exists, seconds=PATIENCE)
        spider.send_signal(signal.SIGINT)
        output, errors = spider.communicate(timeout=PATIENCE)
    assert spider.returncode == 130, errors
    first = json.loads(output)
    assert first["reason"] == "paused"
    assert 0 < first["pages"] < PAGES
    told = errors.rstrip().splitlines()[-1]
    command = shlex.split(told.partition("paused; continue with: ")[2])
    assert command[:5] == [*SKEP, "run", "spiders.py:Pages"], "it can be pasted (U8)"
    resumed = run(desk, *command[4:])
    assert resumed.returncode == 0, resumed.stderr
    second = json.loads(resumed.stdout)
    assert second["run"] == first["run"]
    assert first["pages"] + second["pages"] == PAGES
    urls = [item["url"] for item in items_of(desk / "items.jsonl")]
    assert len(urls) == len(set(urls)) == PAGES


def test_a_second_ctrl_c_ends_at_once(desk: Path, site: str, center: CenterProcess) -> None:
    """Also while the spider's code hangs."""
    with started(desk, "spiders.py:Hanging", "-a", f"url={site}", *at(center)) as spider:
        assert spider.stdout is not None
        assert spider.stdout.readline() == "hanging\n"
        spider.send_signal(signal.SIGINT)
        assert spider.stderr is not None
        assert any("once more ends it at once" in line for line in spider.stderr)
        spider.send_signal(signal.SIGINT)
        _, errors = spider.communicate(timeout=5)
    assert spider.returncode == 130
    assert (
        f"stopped immediately; continue with: {shlex.join(SKEP)} run spiders.py:Hanging" in errors
    )


#: No sink listens there.
AWAY = "redis://127.0.0.1:1/0?list=items"


def read_until(stream: IO[str], words: str) -> str:
    """What is said up to the line with these words."""
    told = ""
    for line in stream:
        told += line
        if words in line:
            return told
    raise AssertionError(f"{words!r} was never said: {told}")


def test_ctrl_c_while_the_outputs_get_their_last_items(
    desk: Path, site: str, center: CenterProcess
) -> None:
    """The run is finished and its sink is away: one Ctrl-C ends the wait, and the items stay."""
    asked = ["spiders.py:Pages", "-a", f"url={site}", "-o", AWAY, "--run", "away", *at(center)]
    with started(desk, *asked) as spider:
        assert spider.stderr is not None
        read_until(spider.stderr, "retrying until it answers")
        until_sync(lambda: run_state(center, "away") == "finished", seconds=PATIENCE)
        # The sink is away: the process waits for it, up to half a minute.
        spider.send_signal(signal.SIGINT)
        _, errors = spider.communicate(timeout=10)
    assert spider.returncode == 130, errors
    assert "not waiting for the outputs; once more ends it at once" in errors
    assert "the delivery was interrupted; the items are kept" in errors
    assert "skep data export away -o URL" in errors
    exported = subprocess.run(
        [*SKEP, "data", "export", "away", "-o", "late.jsonl", *at(center)],
        cwd=desk,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert exported.returncode == 0, exported.stderr
    assert len(items_of(desk / "late.jsonl")) == PAGES


def test_a_second_ctrl_c_while_the_sink_is_away(
    desk: Path, site: str, center: CenterProcess
) -> None:
    """The first one pauses the run, then the sink is waited for; the second ends it at once and
    says how to go on. Nothing is lost."""
    asked = ["spiders.py:Pages", "-a", f"url={site}", "-a", "wait=0.05", "-o", AWAY]
    asked += ["--run", "twice", "-s", "block_size=5", *at(center)]
    with started(desk, *asked) as spider:
        assert spider.stderr is not None
        until_sync((desk / "began").exists, seconds=PATIENCE)
        spider.send_signal(signal.SIGINT)
        read_until(spider.stderr, "once more ends it at once")
        until_sync(lambda: run_state(center, "twice") == "paused", seconds=PATIENCE)
        spider.send_signal(signal.SIGINT)
        _, errors = spider.communicate(timeout=5)
    assert spider.returncode == 130, errors
    assert "stopped immediately; continue with: " in errors
    resumed = run(desk, *asked[:3], "-o", "items.jsonl", "--resume", "twice", *at(center))
    assert resumed.returncode == 0, resumed.stderr
    urls = [item["url"] for item in items_of(desk / "items.jsonl")]
    assert len(urls) == len(set(urls)) == PAGES


def run_state(center: CenterProcess, name: str) -> str:
    """Empty when there is no such run yet."""
    token = (center.folder / "admin.token").read_text().strip()
    call = urllib.request.Request(
        f"{center.url}/api/v1/runs/{name}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(call, timeout=10) as answer:
            return str(json.load(answer)["run"]["state"])
    except urllib.error.HTTPError:
        return ""


def test_beside_a_running_center(desk: Path, site: str, center: CenterProcess) -> None:
    """R1: the same spider, another way to run it; limits and settings from the command line."""
    done = run(desk, "spiders:Pages", "-a", f"url={site}", "--pages=7", "--json", *at(center))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["reason"], summary["pages"]) == ("page limit", 7)
    assert "skep data export " in done.stderr
    assert not (desk / "skep-data").exists(), "it brought no center of its own"
    items = run(
        desk, "spiders:Pages", "-a", f"url={site}", "--items=3", "--json", *at(center),
        "-s", "depth_limit=1",
    )  # fmt: skip
    assert json.loads(items.stdout)["items"] == 3


def test_the_center_of_the_data_folder_is_used(
    desk: Path, site: str, center: CenterProcess
) -> None:
    asked = ("spiders.py:Pages", "-a", f"url={site}", "--data", str(center.folder))
    done = run(desk, *asked, "--pages=3")
    assert done.returncode == 0, done.stderr
    assert f"center {center.url}" in done.stderr
    assert not (center.folder / "center.log").exists(), "no second one was started"
    assert center.ready(), "and it stays when the spider has gone"


WRONG = {
    "no such file": (["nowhere.py"], 2, "there is no file nowhere.py"),
    "several spiders": (["spiders.py"], 2, "spiders.py:Pages, spiders.py:Broken"),
    "unknown setting": (["spiders.py:Pages", "-s", "retry=3"], 2, "did you mean 'retries'?"),
    "unknown sink": (["spiders.py:Pages", "-o", "ftp://x/y"], 2, "no sink speaks 'ftp'"),
    "nothing to resume": (["spiders.py:Broken", "--resume"], 3, "leave --resume out"),
    "unknown run": (["spiders.py:Pages", "--resume", "ghost"], 3, "no run 'ghost'"),
    "two names": (["spiders.py:Pages", "--run", "a", "--resume", "b"], 2, "--run cannot be used"),
    "start raises": (["spiders.py:Broken"], 1, "no idea where to begin (start failed)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_in_one_line(desk: Path, center: CenterProcess, what: str) -> None:
    arguments, code, sentence = WRONG[what]
    done = run(desk, *arguments, *at(center))
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr


def test_a_spider_without_a_center_gives_up_and_says_so(desk: Path) -> None:
    """Fault 1: it tries as often as it was told, then exit code 6."""
    nobody = ["--center", "http://127.0.0.1:9", "-s", "center_tries=3"]
    done = run(desk, "spiders.py:Pages", "-a", "url=http://127.0.0.1:9", *nobody)
    assert done.returncode == 6
    assert "(tried 3 times) (center unreachable)" in done.stderr


def test_a_run_in_which_every_callback_raised_did_not_work(
    desk: Path, site: str, center: CenterProcess
) -> None:
    done = run(desk, "spiders.py:Raising", "-a", f"url={site}", *at(center))
    assert done.returncode == 1
    assert "ValueError: what is this?" in done.stderr
    assert "error: the callback raised an exception on every page" in done.stderr


def test_the_line_of_progress() -> None:
    stats = Stats(pages=1234, items=1230, failed=2, callback_errors=1, open=456)
    line = figures(stats, 152.0)
    assert line == ("1,234 pages · 152 p/s · 1,230 items · 3 errors · 456 waiting · eta 3s")
    assert figures(stats, 0.0).endswith("456 waiting · eta ?")
    assert figures(Stats(), 0.0).endswith("0 waiting · eta 0s")


def test_progress_without_a_terminal_is_a_line_every_two_seconds() -> None:
    stream, clock = io.StringIO(), ManualClock()
    progress = SpiderProgress(stream, clock)
    for second in range(5):
        progress.update(Stats(pages=100 * second, open=50))
        progress.note("a log line") if second == 1 else None
        clock.advance(1)
    lines = stream.getvalue().splitlines()
    assert [line.partition(" · ")[0] for line in lines] == ["a log line", "200 pages", "400 pages"]
    assert lines[1].startswith("200 pages · 100 p/s · ")


WHO = """
import os
from pathlib import Path

import skep

Path("loaded").open("a").write(f"{os.getpid()}\\n")


class Who(skep.Spider):
    url: str = ""

    def start(self):
        yield f"{self.url}/page/0"

    def parse(self, response):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        yield {"spider": os.getpid(), "children": [int(child) for child in children]}
"""


def test_the_spider_is_loaded_in_its_own_process_alone(tmp_path: Path, site: str) -> None:
    """U15: the center is a fork of this process, from before the spider's code was loaded."""
    (tmp_path / "who.py").write_text(WHO)
    done = run(tmp_path, "who.py", "-a", f"url={site}", "-o", "items.jsonl")
    assert done.returncode == 0, done.stderr
    (item,) = items_of(tmp_path / "items.jsonl")
    assert (tmp_path / "loaded").read_text().split() == [str(item["spider"])]
    (center,) = item["children"]
    assert not Path(f"/proc/{center}").exists(), "it ended with the run"


def test_a_spider_that_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    """U15: a center that was begun for it is gone, and its folder too."""
    (tmp_path / "broken.py").write_text("import skep\n1 / 0\n")
    done = run(tmp_path, "broken.py")
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
    assert not [
        path for path in tmp_path.iterdir() if path.name not in {"broken.py", "__pycache__"}
    ]
    told = run(tmp_path, "missing.py")
    assert told.returncode != 0
    assert {path.name for path in tmp_path.iterdir()} <= {"broken.py", "__pycache__"}
