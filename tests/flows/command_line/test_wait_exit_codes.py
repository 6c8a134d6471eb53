"""One rule for the exit codes of every command that waits for requests (U6)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from skep.cli.main import COMMANDS, skep
from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 60.0
SPIDER = """
import skep

class Listed(skep.Spider):
    settings = {"host_delay": 0.0, "host_concurrency": 16}

    def start(self):
        yield from self.urls.split(",")

    def parse(self, response):
        yield {"url": response.url}
"""
#: Demos wait too; their site has no dead page, so `test_demo.py` runs them.
DEMOS = {"demo", "demo break"}
#: What the rule is about: how many of four pages are there -> the exit code.
OUTCOMES = {
    "all": (4, (), 0),
    "some": (3, (), 7),
    "none": (0, (), 1),
    "allowed number": (3, ("--allow-dead", "1"), 0),
    "allowed percent": (2, ("--allow-dead", "50%"), 0),
    "more than allowed": (2, ("--allow-dead", "1"), 7),
}


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    env = {"SKEP_JOBS_KEEP_EVERY": "0.1"}
    with CenterProcess(tmp_path_factory.mktemp("center"), env, with_agent=True) as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", "--pages=50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def environment(center: CenterProcess) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, **QUICK, "SKEP_DATA": str(center.folder), "NO_COLOR": "1"}


def typed(
    center: CenterProcess, *arguments: str, text: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SKEP, *arguments],
        input=text,
        cwd=folder,
        env=environment(center),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def submitted(center: CenterProcess, name: str, urls: list[str], more: tuple[str, ...]) -> int:
    text = "\n".join(urls)
    return typed(center, "submit", name, "-", "--new", "--wait", *more, text=text).returncode


def job_run(center: CenterProcess, name: str, urls: list[str], more: tuple[str, ...]) -> int:
    document = json.dumps({"name": name, "requests": urls, "settings": {"robots": False}})
    assert typed(center, "job", "apply", "-", text=document).returncode == 0
    return typed(center, "job", "run", name, "--wait", *more).returncode


def spider_run(center: CenterProcess, name: str, urls: list[str], more: tuple[str, ...]) -> int:
    file = center.folder / "listed.py"
    file.write_text(SPIDER)
    arguments = ("run", str(file), "-a", f"urls={','.join(urls)}", "--run", name)
    return typed(center, *arguments, *more).returncode


#: Every command that waits for requests, and how to make it wait for these.
WAITING: dict[str, Callable[[CenterProcess, str, list[str], tuple[str, ...]], int]] = {
    "submit": submitted,
    "job run": job_run,
    "run": spider_run,
}


def commands_that_wait() -> set[str]:
    """By their options: a flag `--wait`, or `--allow-dead`."""
    found: set[str] = set()
    for name in COMMANDS:
        command = skep.get_command(click.Context(skep), name)
        below = command.commands if isinstance(command, click.Group) else {}
        for full, one in {
            name: command,
            **{f"{name} {sub}": it for sub, it in below.items()},
        }.items():
            if any(_waits(option) for option in (one.params if one else ())):
                found.add(full)
    return found


def _waits(option: click.Parameter) -> bool:
    if not isinstance(option, click.Option):
        return False
    return option.name == "allow_dead" or (option.name == "wait" and option.is_flag)


def test_the_table_below_names_every_command_that_waits() -> None:
    """These wait for an operation, not for requests: `unit/cli/test_operation_exit.py`."""
    operations = {"bulk", "failures cancel", "failures forget", "failures retry", "request cancel"}
    assert commands_that_wait() - operations == set(WAITING)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("command", WAITING)
def test_one_rule_for_all(center: CenterProcess, site: str, command: str, outcome: str) -> None:
    """U6: 0 all done, 7 some dead, 1 none done; --allow-dead as a number or percentage."""
    good, more, code = OUTCOMES[outcome]
    urls = [f"{site}/page/{number}" for number in range(good)]
    urls += [f"{site}/status/404?n={number}" for number in range(4 - good)]
    name = f"{command}-{outcome}".replace(" ", "-")
    assert WAITING[command](center, name, urls, more) == code


@pytest.mark.parametrize("value", ["many", "-1", "5.5", "101%", "%"])
def test_a_limit_that_makes_no_sense_is_refused(center: CenterProcess, value: str) -> None:
    done = typed(center, "submit", "x", "-", f"--allow-dead={value}")
    assert (done.returncode, value in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("command", ["submit", "job run"])
def test_ctrl_c_ends_the_command_and_not_the_run(
    center: CenterProcess, site: str, command: str
) -> None:
    """U12: the progress is shown, and the last words say that the run goes on and how to end
    it."""
    url = f"{site}/slow?seconds=20&c={command[0]}"
    if command == "submit":
        arguments = ["submit", "long", "-", "--new", "--wait"]
    else:
        document = json.dumps({"name": "long-job", "requests": [url]})
        assert typed(center, "job", "apply", "-", text=document).returncode == 0
        arguments = ["job", "run", "long-job", "--wait"]
    with subprocess.Popen(
        [*SKEP, *arguments],
        env=environment(center),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = interrupted(process, url)
    assert process.returncode == 130
    shown = re.search(r" continues: `.* runs show (\S+)` shows it, `.* runs cancel \1` ends", said)
    assert shown is not None, said
    run = shown[1]
    state = json.loads(typed(center, "runs", "show", run, "--json").stdout)
    assert (state["run"]["state"], state["ledger"]["accepted"]) == ("running", 1)
    assert typed(center, "runs", "cancel", run).returncode == 0


def interrupted(process: subprocess.Popen[str], url: str) -> str:
    """What it says when Ctrl-C comes after its first line of progress."""
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(f"{url}\n")
    process.stdin.close()
    said, deadline = "", time.monotonic() + PATIENCE
    while "0/1" not in said:
        assert time.monotonic() < deadline
        said += process.stderr.readline()
    process.send_signal(signal.SIGINT)
    return said + process.stderr.read()
