"""Names that are not there, and advice that fits the case (U11)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest

from skep.cli.main import COMMANDS, skep
from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
#: What is typed -> what the error says.
REFUSED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("schedule", "fires", "nosuch"): ("no job", "nosuch"),
    ("failures", "retry", "--failure", "nosuch", "--yes"): ("'nosuch'", "network, timeout"),
    ("failures", "ls", "--failure", "nosuch"): ("'nosuch'", "network, timeout"),
    ("sites", "set", "http://x y", "--rate", "1"): ("'http://x y' is not a host", "without scheme"),
    ("sites", "show", "http://example.org/a"): ("is not a host", "such as example.org"),
    ("runs", "show", "nosuch"): ("no run 'nosuch'", "runs` lists"),
    ("data", "export", "nosuch"): ("no run 'nosuch'", "runs` lists"),
}


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    with CenterProcess(tmp_path_factory.mktemp("center"), with_agent=True) as running:
        yield running


def typed(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return subprocess.run(
        [*SKEP, *arguments],
        input=text,
        env={**kept, **QUICK, "SKEP_DATA": str(folder), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_an_error_names_the_choices(center: CenterProcess, arguments: tuple[str, ...]) -> None:
    """U11, U13: no success for what is not there, and no "create it with PUT"."""
    done = typed(center.folder, *arguments)
    assert done.returncode != 0, done.stdout
    assert all(part in said(done) for part in REFUSED[arguments]), done.stderr
    assert "PUT" not in done.stderr


def test_a_job_stands_for_its_latest_run(center: CenterProcess) -> None:
    """U11: `runs show JOB` and `why JOB` take the job's name, and say which run it is."""
    document = {"name": "ticker", "requests": ["http://ticker.invalid/"]}
    assert typed(center.folder, "job", "apply", "-", text=json.dumps(document)).returncode == 0
    first = typed(center.folder, "job", "run", "ticker").stdout.strip()
    shown = typed(center.folder, "runs", "show", "ticker")
    assert shown.returncode == 0, shown.stderr
    assert f"{first} is the latest run of ticker" in said(shown)
    assert typed(center.folder, "why", "ticker").returncode == 0
    filled = typed(center.folder, "submit", "ticker", "-", text="http://ticker.invalid/b\n")
    assert filled.returncode != 0


#: What a command needs beside the run.
MORE: dict[str, list[str]] = {
    "replay": ["--spider", "spider.py"],
    "dispatch": ["--log"],
    "failures show": ["0a1b2c3d4e5f@ticker.invalid"],
    "failures retry": ["--dry-run"],
    "failures cancel": ["--dry-run"],
    "failures forget": ["--dry-run"],
    "request cancel": ["--dry-run"],
    "placement preview": ["--remove", "nosuch"],
}
#: They put something into a run or give it its name; `app` has tests of its own.
NAMES_A_RUN = {"submit", "run", "app ls", "app logs", "app restart", "app stop"}
EACH = """
import contextlib, io, json, sys
from skep.cli.main import run
said = {}
for name, arguments in json.loads(sys.argv[1]).items():
    text = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        run(arguments)
    said[name] = text.buffer.getvalue().decode()
print(json.dumps(said))
"""


def commands_with_a_run(name: str) -> dict[str, list[str]]:
    """From the tree of commands: each that takes a run, with that name in its place."""
    found: dict[str, list[str]] = {}
    for top in COMMANDS:
        command = skep.get_command(click.Context(skep), top)
        below = command.commands if isinstance(command, click.Group) else {}
        for full, one in {top: command, **{f"{top} {sub}": c for sub, c in below.items()}}.items():
            for param in one.params if one and full not in NAMES_A_RUN else ():
                if param.name in {"run", "thing"}:
                    place = ["--run", name] if isinstance(param, click.Option) else [name]
                    found[full] = [*full.split(), *place, *MORE.get(full, [])]
    return found


def test_every_command_takes_a_job_for_its_latest_run(center: CenterProcess) -> None:
    """U11: not some of them; and a name that fits nothing is an error for each."""
    (center.folder / "spider.py").write_text("import skep\nclass S(skep.Spider): pass\n")
    document = {"name": "latest", "requests": ["http://ticker.invalid/"]}
    assert typed(center.folder, "job", "apply", "-", text=json.dumps(document)).returncode == 0
    assert typed(center.folder, "job", "run", "latest").returncode == 0
    lines = commands_with_a_run("latest")
    assert len(lines) > 20
    for command, said in each(center, lines).items():
        assert not re.search("there is no .*'latest'|Usage:|Traceback", said), (command, said)
    for command, said in each(center, commands_with_a_run("nosuch")).items():
        assert re.search("no .*'nosuch'", said), (command, said)


def each(center: CenterProcess, lines: dict[str, list[str]]) -> dict[str, str]:
    """What each command says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(lines)],
        cwd=center.folder,
        env={**kept, **QUICK, "SKEP_DATA": str(center.folder), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_an_agent_before_joining_is_told_how_to_join(tmp_path: Path) -> None:
    """U11: not to start a center of its own."""
    for more in ((), ("--processes", "2")):
        done = typed(tmp_path, "agent", *more)
        assert done.returncode != 0
        assert "agent join URL --token TOKEN" in said(done)


def test_without_a_token_the_error_says_where_one_is_read(
    center: CenterProcess, tmp_path: Path
) -> None:
    """U11: 401 does not point at `skep info`, which needs a token itself."""
    done = typed(tmp_path, "info", "--center", (center.folder / "center.url").read_text().strip())
    assert done.returncode != 0
    assert "--token-file FILE" in said(done)
    assert "skep info" not in said(done)


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Quiet."""


def test_another_server_is_not_taken_for_a_center(tmp_path: Path) -> None:
    """U11: `info --center` of a plain web server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = typed(tmp_path, "info", "--center", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert done.returncode != 0
    assert "not from a Skep center; check the address" in said(done)
