"""`skep user`, `group`, `token` and `audit` against a center that `skep up` started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("people-cli")

SKEP = [sys.executable, "-m", "skep"]
PATIENCE = 60.0
PASSWORD = "correct horse battery"


def environment(data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, "SKEP_DATA": str(data), "NO_COLOR": "1", "COLUMNS": "80"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The data folder, and what the program said: address, login and so on."""
    data = tmp_path_factory.mktemp("people") / "data"
    command = [*SKEP, "up", "--no-agent", "--port", "0"]
    with subprocess.Popen(
        command, env=environment(data), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        said: dict[str, str] = {}
        for line in process.stdout:
            word, _, rest = line.partition(" ")
            said[word] = rest.strip()
            if word == "login":
                break
        try:
            yield data, said
        finally:
            process.terminate()
            process.wait(PATIENCE)


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
    done = skep(data, *arguments, "--json", text=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def log_in(address: str, **form: str) -> int:
    """The status of a login over HTTP."""
    body = json.dumps(form).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/api/v1/login", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_up_prints_a_link_that_logs_an_admin_in_once(up: tuple[Path, dict[str, str]]) -> None:
    """P4: no default password; the first admin logs in by link."""
    data, said = up
    page, _, secret = said["login"].partition("#")
    assert page == f"{said['address']}/login"
    assert log_in(said["address"], kind="link", link=secret) == 200
    assert log_in(said["address"], kind="link", link=secret) == 401
    (admin,) = [user for user in answer(data, "user", "ls")["items"] if user["name"] == "admin"]
    assert (admin["role"], admin["has_password"]) == ("admin", False)
    for guess in ("", "admin", "password"):
        assert log_in(said["address"], user="admin", password=guess) == 401


def test_users_are_made_changed_and_deleted(up: tuple[Path, dict[str, str]]) -> None:
    data, said = up
    made = answer(data, "user", "add", "anna", "--role", "operator", text=f"{PASSWORD}\n")
    assert (made["name"], made["role"]) == ("anna", "operator")
    assert log_in(said["address"], user="anna", password=PASSWORD) == 200
    assert answer(data, "user", "role", "anna", "viewer")["role"] == "viewer"
    assert len(answer(data, "user", "sessions", "anna")["items"]) == 1
    assert len(answer(data, "user", "sessions", "user:anna", "since:1h")["items"]) == 1
    assert len(answer(data, "user", "sessions", "anna", "since:1h")["items"]) == 1
    assert answer(data, "user", "sessions", "-user:anna", "user:anna")["count"] == 0
    assert answer(data, "user", "sessions", "anna", "-user:anna")["count"] == 0
    assert [one["name"] for one in answer(data, "user", "ls", "name:an*")["items"]] == ["anna"]
    assert answer(data, "user", "ls", "state:disabled", "name:anna")["items"] == []
    wrong = skep(data, "user", "ls", "colour:red")
    assert (wrong.returncode, "colour" in wrong.stderr) == (2, True)
    assert answer(data, "op", "ls", "act:retry", "--open")["count"] == 0
    assert skep(data, "op", "ls", "act:retry", "--before", "7").returncode == 2
    assert answer(data, "user", "passwd", "anna", text="another password\n") == {"sessions": 1}
    assert log_in(said["address"], user="anna", password=PASSWORD) == 401
    assert answer(data, "user", "disable", "anna")["disabled"] is True
    assert skep(data, "user", "link", "anna").returncode == 3
    assert answer(data, "user", "enable", "anna")["disabled"] is False
    link = skep(data, "user", "link", "anna").stdout.strip()
    assert log_in(said["address"], kind="link", link=link.partition("#")[2]) == 200
    assert answer(data, "user", "logout", "anna") == {"sessions": 1}
    assert "anna" in skep(data, "user", "ls").stdout
    assert skep(data, "user", "rm", "anna").stdout == "anna is deleted\n"
    assert skep(data, "user", "rm", "anna").returncode == 3
    last = skep(data, "user", "role", "admin", "viewer")
    assert last.returncode == 5
    assert "last admin" in last.stderr


def test_a_password_is_never_an_argument(up: tuple[Path, dict[str, str]]) -> None:
    data, _ = up
    assert skep(data, "user", "add", "bob", "--password", PASSWORD).returncode == 2
    nothing = skep(data, "user", "passwd", "admin")
    assert nothing.returncode == 2
    assert "standard input" in nothing.stderr
    short = skep(data, "user", "add", "bob", text="short\n")
    assert short.returncode == 2
    assert "8 to 1024" in short.stderr


def test_groups_and_scoped_tokens(up: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    data, _ = up
    assert skep(data, "group", "set", "eu", "team=a", "team=b").stdout == "eu: team=a, team=b\n"
    assert "--link" in skep(data, "user", "add", "--help").stdout
    made = answer(data, "user", "add", "eva", "--group", "eu", "--link")
    assert made["url"].startswith("http")
    assert skep(data, "group", "rm", "eu").returncode == 5
    assert skep(data, "user", "groups", "eva").returncode == 2
    assert answer(data, "user", "groups", "eva", "--none")["groups"] == []
    assert answer(data, "group", "rm", "eu")["name"] == "eu"
    token = skep(data, "token", "add", "--role", "viewer", "--name", "ci", "--scope", "team=a")
    file = tmp_path / "token"
    file.write_text(token.stdout)
    for command in ("agents", "runs"):
        assert skep(data, command, "--token-file", str(file)).returncode == 0
    refused = skep(data, "sites", "--token-file", str(file))
    assert refused.returncode == 4
    assert "team=a" in refused.stderr
    assert "team=a" in skep(data, "token", "ls", "--wide").stdout


def test_the_audit_log_names_the_commands(up: tuple[Path, dict[str, str]]) -> None:
    data, _ = up
    skep(data, "group", "set", "audited", "team=z")
    (row,) = answer(data, "audit", "object:group:audited", "outcome:done")["items"]
    assert (row["action"], row["client"]) == ("set_user_group", "cli")
    shown = skep(data, "audit", "action:set_user_group", "--limit", "5")
    assert "group:audited" in shown.stdout
    wrong = skep(data, "audit", "colour:red")
    assert wrong.returncode == 2
    assert "`object`" in wrong.stderr
