"""The command line as people and scripts use it: real processes, exit codes, real work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from skep.testing.polling import until_sync

pytestmark = pytest.mark.xdist_group("cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 60.0


def environment(data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, "SKEP_DATA": str(data), "NO_COLOR": "1"}


def skep(data: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SKEP, *arguments],
        input=text,
        env=environment(data),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def answer(data: Path, *arguments: str, text: str = "") -> Any:
    """The JSON of a command that works."""
    done = skep(data, *arguments, "--json", text=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def started(data: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program that stays; what it logs goes into a file beside the data folder."""
    log = data.with_suffix(".log").open("w")
    with (
        log,
        subprocess.Popen(
            [*SKEP, *arguments],
            env=environment(data),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    """What the program says up to a line that begins with `word`."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line.rstrip())
        if line.startswith(word):
            return said
    raise AssertionError(f"it ended without saying {word!r}: {said}")


def ask(data: Path, path: str) -> Any:
    """What the center itself says: quicker than one more process."""
    address = urlsplit((data / "center.url").read_text().strip())
    connection = HTTPConnection(address.netloc, timeout=PATIENCE)
    token = (data / "admin.token").read_text().strip()
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    assert response.status == 200, found
    return found


def accepted_by(data: Path, run: str) -> int:
    return int(ask(data, f"/api/v1/ledger?run={run}")["ledger"]["accepted"])


def agents_named(data: Path, name: str) -> list[dict[str, Any]]:
    who = [line["agent"]["registration"] for line in ask(data, "/api/v1/agents")["items"]]
    return [agent for agent in who if agent["name"].startswith(name)]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    command = [sys.executable, "-m", "skep.testing.site", "--pages", "6000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture(scope="module")
def said(data: Path) -> Iterator[list[str]]:
    """`skep up`, and what it said until its agent had joined."""
    with started(data, "up", "--port", "0") as process:
        yield lines_until(process, "next")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture
def up(said: list[str], data: Path) -> Path:
    """The data folder of a center with an agent that work."""
    assert said
    return data


def test_up_says_where_things_are(said: list[str], data: Path) -> None:
    words = dict(line.split(maxsplit=1) for line in said[1:])
    assert words["data"] == str(data)
    assert words["token"] == str(data / "admin.token")
    assert words["agent"].endswith(" joined")
    submit = "python -m skep submit first --new --wait -"
    assert words["next"].endswith(submit), "no circle with demo (U8)"
    assert (data / "center.url").read_text().strip() == words["address"]
    assert ask(data, "/readyz?verbose")["status"] == "ok"


def test_secrets_are_for_their_owner_only(up: Path) -> None:
    for name in ("admin.token", "agent.token"):
        assert (up / name).stat().st_mode & 0o777 == 0o600
    assert up.stat().st_mode & 0o077 == 0


def test_a_second_up_in_the_same_folder_is_refused(up: Path) -> None:
    done = skep(up, "up", "--port", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: another center works in")
    assert "--data" in done.stderr


def test_submit_from_stdin_and_wait(up: Path, site: str) -> None:
    """C1: accepted once, known after that, done by the agent; the ledger adds up."""
    pages = "".join(f"{site}/page/{number}\n" for number in range(300))
    first = skep(up, "submit", "good", "-", "--new", "--retries", "2", "--wait", text=pages)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("300 accepted, 0 known\n300 accepted = ")
    assert "300 done" in first.stdout
    assert "300/300" in first.stderr, "progress goes to stderr"
    again = answer(up, "submit", "good", "-", text=pages)
    assert again == {"run": "good", "accepted": 0, "known": 300}


def test_submit_takes_json_lines_from_a_file(up: Path, site: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(f'{{"uri": "{site}/page/1", "priority": 0, "meta": {{"a": 1}}}}\n{site}/page/2')
    arguments = ("submit", "lines", str(file), "--new", "--set", "block_size=1", "--wait")
    assert answer(up, *arguments)["ledger"]["done"] == 2
    shown = answer(up, "info", "--run", "lines")
    assert shown["runs"][0]["run"]["settings"]["block_size"] == 1
    number = answer(up, "request", "ls", "--run", "lines")["items"][0]["id"]
    page = skep(up, "request", "body", str(number))
    assert (page.returncode, "<html" in page.stdout.lower()) == (0, True), page.stderr
    kept = tmp_path / "page.html"
    assert skep(up, "request", "body", str(number), "-o", str(kept)).returncode == 0
    assert kept.read_text() == page.stdout


def test_a_bad_line_is_named_and_nothing_is_stored(up: Path, site: str) -> None:
    done = skep(up, "submit", "bad", "-", "--new", text=f"{site}/page/1\n\nnot a url\n")
    assert done.returncode == 2
    assert done.stderr.startswith("error: line 3: 'not a url' is not a URL")
    assert accepted_by(up, "bad") == 0
    done = skep(up, "submit", "bad", "-", text='{"uri": "http://a/", "oops": 1}\n')
    assert done.returncode == 2
    assert done.stderr.startswith("error: line 1: ")


def test_a_bad_line_in_a_later_batch_leaves_the_earlier_ones(up: Path, site: str) -> None:
    lines = [f"{site}/page/{number}" for number in range(5001)]
    done = skep(up, "submit", "long", "-", "--new", text="\n".join([*lines, "nonsense"]))
    assert done.returncode == 7
    assert "line 5002" in done.stderr
    assert "5000 accepted" in done.stderr
    assert accepted_by(up, "long") == 5000


def test_waiting_tells_dead_from_late(up: Path, site: str) -> None:
    dead = skep(up, "submit", "dead", "-", "--new", "--wait", text=f"{site}/status/500\n")
    assert dead.returncode == 1, "none is done (U6)"
    assert "1 dead" in dead.stdout
    arguments = ("submit", "late", "-", "--new", "--wait", "--timeout", "0.3")
    assert skep(up, *arguments, text=f"{site}/slow?seconds=60\n").returncode == 8
    told = skep(up, "runs", "cancel", "late").stdout.splitlines()
    assert told[0] == "late is cancelled"
    assert "1 agent acknowledged in " in told[1], "R2: it shows who acknowledged the command"
    assert skep(up, "runs", "continue", "late").returncode == 5
    assert answer(up, "runs", "revive", "dead") == {"requests": 1}


def test_exit_codes_that_scripts_rely_on(up: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.token"
    wrong.write_text("skep_admin_nobody")
    assert skep(up, "runs", "--token-file", str(wrong)).returncode == 4
    assert skep(up, "runs", "--token-file", str(up / "agent.token")).returncode == 4
    assert skep(up, "runs", "--token-file", str(tmp_path / "absent")).returncode == 2
    assert skep(up, "submit", "unknown", "-", text="http://127.0.0.1/\n").returncode == 3
    assert skep(up, "agents", "disable", "nobody").returncode == 3
    unreachable = skep(up, "info", "--center", "http://127.0.0.1:9")
    assert unreachable.returncode == 6
    assert re.fullmatch(r"error: .+ \(center_unreachable\)\n", unreachable.stderr)
    nowhere = skep(tmp_path / "nothing", "info")
    assert nowhere.returncode == 6
    assert "skep up" in nowhere.stderr


def test_info_is_one_screen_or_one_document(up: Path) -> None:
    view = answer(up, "info")
    assert view["ledger"]["unaccounted"] == 0
    assert [lane["lane"] for lane in view["lanes"]] == ["super", "high", "mid", "low"]
    assert True in [agent["alive"] for agent in view["agents"]]
    text = skep(up, "info").stdout
    assert re.search(r"^[\d,]+ accepted( = |$)", text, re.MULTILINE), text
    assert "LAST HEARTBEAT" in text
    assert "\x1b" not in text


def test_the_doctor_finds_a_token_that_others_can_read(up: Path) -> None:
    well = skep(up, "doctor")
    assert well.returncode == 0, well.stdout
    token = up / "agent.token"
    token.chmod(0o644)
    try:
        ill = skep(up, "doctor", "--json")
    finally:
        token.chmod(0o600)
    assert ill.returncode == 1
    checks = json.loads(ill.stdout)["checks"]
    wrong = [check for check in checks if not check["ok"] and not check["warning"]]
    assert [(check["name"], check["fix"]) for check in wrong] == [
        ("agent.token", f"chmod 600 {token}")
    ]


def test_an_agent_of_its_own_joins_obeys_and_leaves(up: Path, tmp_path: Path) -> None:
    """C2, C3: it is seen with its labels; disabled it still beats; told to exit it ends."""
    url = (up / "center.url").read_text().strip()
    token = tmp_path / "token"
    token.write_text(skep(up, "agents", "token").stdout)
    arguments = ("agent", "--center", url, "--token-file", str(token), "--name", "guest")

    with started(tmp_path / "guest", *arguments, "--label", "zone=eu") as process:
        until_sync(lambda: agents_named(up, "guest"), seconds=PATIENCE)
        (who,) = agents_named(up, "guest")
        assert who["labels"] == {"zone": "eu"}
        assert skep(up, "agents", "disable", who["id"]).stdout == f"{who['id']} is disabled\n"
        assert skep(up, "agents", "enable", who["id"]).stdout == f"{who['id']} is alive\n"
        second = skep(tmp_path / "guest", *arguments)
        assert second.returncode == 2
        assert "another agent works in" in second.stderr
        assert skep(up, "agents", "exit", who["id"]).returncode == 0
        assert process.wait(PATIENCE) == 0


def test_an_agent_with_a_wrong_token_ends_at_once(up: Path, tmp_path: Path) -> None:
    url = (up / "center.url").read_text().strip()
    token = tmp_path / "token"
    token.write_text("skep_agent_nobody")
    done = skep(tmp_path / "data", "agent", "--center", url, "--token-file", str(token))
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].endswith("(unauthorized)")


def test_a_process_for_each_agent(up: Path, tmp_path: Path) -> None:
    arguments = ("agent", "--processes", "2", "--name", "crew")
    mine = tmp_path / "crew"
    mine.mkdir()
    for name in ("center.url", "agent.token"):
        (mine / name).write_text((up / name).read_text())

    with started(mine, *arguments) as parent:
        until_sync(lambda: len(agents_named(up, "crew")) == 2, seconds=PATIENCE)
        assert {who["name"] for who in agents_named(up, "crew")} == {"crew-1", "crew-2"}
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 0


def test_an_interrupted_command_says_so(up: Path, site: str) -> None:
    arguments = ("submit", "slow", "-", "--new", "--wait")
    with subprocess.Popen(
        [*SKEP, *arguments], env=environment(up), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(f"{site}/slow?seconds=60\n".encode())
        process.stdin.close()
        assert process.stderr.readline().startswith(b"0/1 "), "it waits by now"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert skep(up, "runs", "cancel", "slow").returncode == 0


def test_up_drains_and_its_work_is_there_after_a_restart(site: str, tmp_path: Path) -> None:
    """Fault 47: what runs may end, the rest waits for the next start; nothing is lost."""
    data = tmp_path / "data"
    with started(data, "up", "--port", "0") as process:
        lines_until(process, "next")
        pages = "".join(f"{site}/slow?seconds=0.2&n={n}\n" for n in range(200))
        assert skep(data, "submit", "r", "-", "--new", text=pages).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    logged = data.with_suffix(".log").read_text().splitlines()
    assert json.loads(logged[-1])["message"] == "stopped"
    with started(data, "up", "--port", "0", "--no-agent") as process:
        lines_until(process, "token")
        until_sync((data / "center.url").exists, seconds=PATIENCE)
        ledger = ask(data, "/api/v1/ledger?run=r")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert (ledger["ledger"]["accepted"], ledger["unaccounted"]) == (200, 0)
    assert ledger["ledger"]["leased"] == 0, "what was not done was given back"


def test_an_open_center_on_a_public_address_is_refused(tmp_path: Path) -> None:
    done = skep(tmp_path, "center", "--host", "0.0.0.0", "--set", "center.auth=false")
    assert done.returncode == 2
    assert "without auth" in done.stderr
