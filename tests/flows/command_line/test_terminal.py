"""What people see in a terminal of 80 and of 140 columns, and what a pipe gets (U7)."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest

from skep.cli.main import COMMANDS, GROUPS, skep
from skep.testing.processes import QUICK, CenterProcess

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 120.0
EXAMPLES = Path(__file__).parents[3] / "examples"
#: Runs each command line in one process: a start of the interpreter for each costs too much.
ALL_OF_THEM = """
import json, sys
from skep.cli.main import run
for arguments in json.loads(sys.argv[1]):
    print("=" * 10, *arguments, flush=True)
    run(arguments)
    sys.stdout.flush()
"""
#: Every command that prints a table or a sheet, and how it is asked for one.
LISTINGS: dict[str, list[str]] = {
    "alerts": ["alerts"],
    "alerts ls": ["alerts", "ls"],
    "alerts rules": ["alerts", "rules"],
    "audit": ["audit"],
    "bulk": ["bulk"],
    "chart": ["chart"],
    "failures groups": ["failures", "groups"],
    "group ls": ["group", "ls"],
    "op": ["op"],
    "op ls": ["op", "ls"],
    "secret ls": ["secret", "ls"],
    "user ls": ["user", "ls"],
    "user sessions": ["user", "sessions"],
    "runs ls": ["runs", "ls"],
    "view ls": ["view", "ls"],
    "agents": ["agents"],
    "agents ls": ["agents", "ls", "state:alive"],
    "agents show": ["agents", "show", "AGENT"],
    "app ls": ["app", "ls"],
    "data deliveries": ["data", "deliveries", "CRAWL"],
    "data rejected": ["data", "rejected", "CRAWL"],
    "dispatch": ["dispatch", "--log"],
    "doctor": ["doctor"],
    "failures": ["failures"],
    "failures ls": ["failures", "ls"],
    "failures show": ["failures", "show", "GROUP"],
    "generator ls": ["generator", "ls", "RUN"],
    "info": ["info"],
    "job history": ["job", "history", "demo-crawl"],
    "job ls": ["job", "ls"],
    "placement preview": ["placement", "preview", "--remove", "AGENT"],
    "placement show": ["placement", "show", "RUN"],
    "request ls": ["request", "ls"],
    "request show": ["request", "show", "1"],
    "runs": ["runs"],
    "runs show": ["runs", "show", "RUN"],
    "schedule fires": ["schedule", "fires", "demo-front"],
    "schedule ls": ["schedule", "ls"],
    "sites": ["sites"],
    "sites ls": ["sites", "ls"],
    "sites show": ["sites", "show", "127.0.0.1"],
    "storage": ["storage"],
    "token ls": ["token", "ls", "--all"],
    "why": ["why", "RUN"],
}
#: Its table needs a spider and a finished run; `test_author_tools.py` reads it.
ELSEWHERE = {"replay"}
LONG_PATH = "/status/503?" + "&".join(f"parameter{number}=value" for number in range(12))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", "--pages=50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory, site: str) -> Iterator[CenterProcess]:
    """With a long run, a dead request with a long address, jobs, schedules and tokens."""
    env = {"SKEP_JOBS_FOLDER": str(EXAMPLES), "SKEP_JOBS_KEEP_EVERY": "0.1"}
    with CenterProcess(tmp_path_factory.mktemp("center"), env, with_agent=True) as running:
        jobs = (EXAMPLES / "jobs.yaml").read_text().replace("http://127.0.0.1:8421", site)
        assert typed(running, "job", "apply", "-", text=jobs).returncode == 0
        pages = "".join(f"{site}/page/{number}\n" for number in range(20))
        dead = f"{site}{LONG_PATH}\n"
        assert typed(running, "submit", "pages", "-", "--new", "--wait", text=pages).returncode == 0
        assert typed(running, "submit", "pages", "-", "--wait", text=dead).returncode == 7
        assert typed(running, "job", "run", "demo-list", "--wait").returncode in {0, 1, 7}
        assert typed(running, "job", "run", "demo-crawl", "--wait").returncode in {0, 1, 7}
        yield running


def environment(center: CenterProcess) -> dict[str, str]:
    dropped = ("SKEP_", "NO_COLOR", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, **QUICK, "SKEP_DATA": str(center.folder), "TERM": "xterm"}


def typed(
    center: CenterProcess, *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SKEP, *arguments],
        input=text,
        env=environment(center),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def in_terminal(
    command: list[str], width: int, env: Mapping[str, str], folder: Path | None = None
) -> tuple[int, str]:
    """(exit code, what came) of a program on a terminal of that width."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=env, cwd=folder
    ) as process:
        os.close(follower)
        said = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    return process.returncode, said.decode().replace("\r\n", "\n")


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # the other side is closed
        return b""


def listings(center: CenterProcess, *more: str) -> list[list[str]]:
    runs = json.loads(typed(center, "runs", "--json").stdout)["items"]
    run = next(view["run"]["id"] for view in runs if view["run"]["id"].startswith("demo-list-"))
    agents = json.loads(typed(center, "agents", "--json").stdout)["items"]
    agent = agents[0]["agent"]["registration"]["id"]
    group = json.loads(typed(center, "failures", "--json").stdout)["items"][0]["group"]
    crawl = next(view["run"]["id"] for view in runs if view["run"]["id"].startswith("demo-crawl-"))
    named = {"CRAWL": crawl, "RUN": run, "AGENT": agent, "GROUP": group}
    return [[*(named.get(word, word) for word in words), *more] for words in LISTINGS.values()]


def widest(text: str) -> str:
    return max(text.splitlines(), key=len)


def test_every_command_with_a_table_is_listed_here() -> None:
    """U7: by the tree of commands: `--wide` marks a table; what lists a number of rows, or is
    named `ls`, has one."""
    found, rows = set(), set()
    for full, options in options_of_commands().items():
        found |= {full} if "wide" in options else set()
        rows |= {full} if "limit" in options or full.endswith(" ls") else set()
    assert found - ELSEWHERE == set(LISTINGS)
    assert rows - found == set()


def options_of_commands() -> dict[str, set[str | None]]:
    """Full name of each command -> its options."""
    found: dict[str, set[str | None]] = {}
    for name in COMMANDS:
        command = skep.get_command(click.Context(skep), name)
        assert command is not None
        below = command.commands if isinstance(command, click.Group) else {}
        all_of = {name: command, **{f"{name} {sub}": one for sub, one in below.items()}}
        found |= {full: {p.name for p in one.params} for full, one in all_of.items()}
    return found


@pytest.mark.parametrize("width", [80, 140])
def test_every_listing_fits(center: CenterProcess, width: int) -> None:
    """U7: no line is longer than the terminal, so no word is broken; nothing is colored, since
    nothing is wrong; with --wide nothing is cut."""
    asked = listings(center)
    command = [sys.executable, "-c", ALL_OF_THEM, json.dumps(asked)]
    _, said = in_terminal(command, width, environment(center))
    assert said.count("=" * 10) == len(asked)
    plain = click.unstyle(said)
    assert len(widest(plain)) <= width, widest(plain)
    assert "Traceback" not in plain
    assert LONG_PATH not in plain
    assert width == 140 or ": --wide)" in plain, "columns that do not fit are named"
    assert re.search(r"^demo-list\.\.[0-9a-v]{4} ", plain, re.MULTILINE), "ids are short"
    assert "0 waiting" not in plain


def test_no_listing_is_colored_where_color_is_not_wanted(center: CenterProcess) -> None:
    """U7: neither with NO_COLOR on a terminal nor in a pipe."""
    command = [sys.executable, "-c", ALL_OF_THEM, json.dumps(listings(center))]
    _, said = in_terminal(command, 80, {**environment(center), "NO_COLOR": "1"})
    assert "\x1b[" not in said
    piped = subprocess.run(
        command, env=environment(center), capture_output=True, text=True, check=False
    )
    assert piped.stdout.count("=" * 10) == len(LISTINGS)
    assert "\x1b[" not in piped.stdout + piped.stderr


@pytest.mark.parametrize("width", [80, 140])
def test_errors_fit_too(center: CenterProcess, width: int) -> None:
    """U7: an error of the command line is wrapped between words."""
    wrong = [["up", "--store"], ["schedule", "preview", "61 * * * *"], ["runs", "show", "nosuch"]]
    command = [sys.executable, "-c", ALL_OF_THEM, json.dumps(wrong)]
    _, said = in_terminal(command, width, environment(center))
    assert "--set store.url=VALUE" in " ".join(said.split())
    assert len(widest(said)) <= width, widest(said)


def test_wide_shows_everything(center: CenterProcess) -> None:
    asked = [["request", "ls", "--wide"], ["runs", "--wide"], ["agents", "--wide"]]
    command = [sys.executable, "-c", ALL_OF_THEM, json.dumps(asked)]
    _, said = in_terminal(command, 80, environment(center))
    assert LONG_PATH in said
    assert re.search(r"^demo-list-[0-9a-v]{16} ", said, re.MULTILINE)


def test_a_pipe_gets_whole_lines_and_full_ids(center: CenterProcess) -> None:
    assert LONG_PATH in typed(center, "request", "ls").stdout
    assert re.search(r"^demo-list-[0-9a-v]{16} ", typed(center, "runs").stdout, re.MULTILINE)


def test_a_short_id_can_be_pasted(center: CenterProcess) -> None:
    """U7: what a table shows, commands take; what fits several or none is an error."""
    _, said = in_terminal([*SKEP, "runs"], 80, environment(center))
    short = next(word for word in said.split() if word.startswith("demo-list.."))
    full = json.loads(typed(center, "runs", "show", short, "--json").stdout)["run"]["id"]
    assert full.endswith(short.rpartition(".")[2])
    assert typed(center, "why", f"run:{short}").returncode == 0
    agent = json.loads(typed(center, "agents", "--json").stdout)["items"][0]["agent"]
    name = agent["registration"]["id"]
    assert typed(center, "agents", "show", f"agent..{name[-4:]}").returncode == 0
    assert typed(center, "runs", "show", "demo-list..0000").returncode == 3


def test_color_is_for_what_needs_attention(center: CenterProcess) -> None:
    """U7: red on a terminal when a check fails; never with NO_COLOR."""
    wrong = [*SKEP, "doctor", "--center", "http://127.0.0.1:9"]
    assert "\x1b[31m" in in_terminal(wrong, 80, environment(center))[1]
    no_color = {**environment(center), "NO_COLOR": "1"}
    assert "\x1b[" not in in_terminal(wrong, 80, no_color)[1]


@pytest.mark.parametrize("width", [80, 140])
def test_help_is_in_groups_and_as_wide_as_the_terminal(center: CenterProcess, width: int) -> None:
    code, said = in_terminal([*SKEP, "--help"], width, environment(center))
    assert code == 0
    assert [line[:-1] for line in said.splitlines() if line[:-1] in GROUPS] == list(GROUPS)
    _, said = in_terminal([*SKEP, "job", "apply", "--help"], width, environment(center))
    assert width - 20 < len(widest(said)) <= width


def test_help_fits_where_the_program_has_a_long_path(center: CenterProcess) -> None:
    """U7: hints name the program as it was started, and are wrapped with it."""
    with TemporaryDirectory(prefix="longer-folder-name-") as folder:
        program = Path(folder) / "skep"
        program.symlink_to(Path(sys.executable).parent / "skep")
        code, said = in_terminal([str(program), "--help"], 80, environment(center))
    assert (code, f"`{program} demo`" in said) == (0, True)
    assert len(widest(said)) <= 80


SPIDER = """
import skep

class Printing(skep.Spider):
    settings = {"host_concurrency": 1, "host_delay": 0.1}

    def start(self):
        yield from (f"{self.url}/page/{number}" for number in range(12))

    def parse(self, response):
        print("printed", response.url)
        if response.url.endswith("/3"):
            raise ValueError("not this one")
        yield {"url": response.url}
"""


def test_what_a_spider_prints_stands_above_the_bar(
    center: CenterProcess, site: str, tmp_path: Path
) -> None:
    """U7: each printed line is a line of its own, also while the bar is drawn."""
    (tmp_path / "printing.py").write_text(SPIDER)
    command = [*SKEP, "run", "printing.py", "-a", f"url={site}"]
    code, said = in_terminal(command, 80, environment(center), tmp_path)
    assert code == 0, said
    assert " pages · " in said, "the bar was drawn"
    shown = [re.sub(r".*\r\x1b\[K", "", line) for line in said.split("\n")]
    assert sum(line == f"printed {site}/page/5" for line in shown) == 1, said
    assert sum(line.startswith("printed ") for line in shown) == 12


def test_redirected_errors_hold_sentences_only(
    center: CenterProcess, site: str, tmp_path: Path
) -> None:
    """U7: no JSON log lines between the sentences of `skep run`."""
    (tmp_path / "printing.py").write_text(SPIDER)
    file = str(tmp_path / "printing.py")
    done = typed(center, "run", file, "-a", f"url={site}")
    assert "not this one" in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("{")]
