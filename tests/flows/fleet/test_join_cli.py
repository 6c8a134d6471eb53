"""`skep agent token` and `skep agent join` as people use them: real processes, and the messages
when something is in the way."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from skep.cli.commands.fleet.agent_join import (
    Folder,
    clocks,
    explain,
    in_the_clear,
    look_at,
    look_at_all,
    protocol,
)
from skep.errors import ConfigurationError
from skep.testing.polling import until_sync
from skep.testing.processes import AgentProcess, CenterProcess, JoinedAgent
from skep.wire.api.health import Version

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    with CenterProcess(tmp_path_factory.mktemp("center")) as running:
        yield running


def skep(data: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return subprocess.run(
        [sys.executable, "-m", "skep", *arguments],
        env={**kept, "SKEP_DATA": str(data), "NO_COLOR": "1", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answer(data: Path, *arguments: str) -> Any:
    done = skep(data, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, bool]:
    return {
        look["finding"]["name"]: look["finding"]["ok"] for look in json.loads(done.stdout)["checks"]
    }


def test_join_work_and_leave(center: CenterProcess, tmp_path: Path) -> None:
    """A1, faults 65, 66: one token, one machine, a credential that only it can read."""
    home = tmp_path / "attic"
    made = skep(center.folder, "agent", "token", "--group", "home", "--label", "site=attic")
    token = made.stdout.strip()
    assert f"skep agent join {center.url} --token {token}" in made.stderr
    looked = skep(home, "agent", "join", center.url, "--token", token, "--check", "--json")
    seen = checks(looked)
    assert seen.pop("egress") in {True, False}, "a machine without a route may join, too"
    assert seen == dict.fromkeys(("reach", "tls", "version", "clock", "token"), True)
    joined = skep(home, "agent", "join", center.url, "--token", token)
    assert (joined.returncode, "in group home" in joined.stdout) == (0, True), joined.stdout
    assert (home / "agent.token").stat().st_mode & 0o777 == 0o600
    assert token not in (home / "agent.token").read_text()
    stolen = skep(tmp_path / "thief", "agent", "join", center.url, "--token", token)
    assert (stolen.returncode, "used already" in stolen.stdout) == (1, True)
    with JoinedAgent(home, [center.url], home / "agent.token") as agent:
        shown = answer(center.folder, "agents", "show", agent.id)["agent"]
        assert (shown["registration"]["group"], shown["bound"]) == ("home", True)
        told = skep(center.folder, "agents", "restart", agent.id)
        assert "was sent the command restart" in told.stdout
        until_sync(lambda: registrations(agent) == 2)
        labels = skep(center.folder, "agents", "label", agent.id, "tier=2", "site-")
        assert labels.stdout == "tier=2\n"
        assert "draining" in skep(center.folder, "agents", "drain", agent.id, "--json").stdout
        skep(center.folder, "agents", "revoke", agent.id)
        lines = answer(center.folder, "token", "ls", "--all")["items"]
        mine = [line["state"] for line in lines if line["token"]["subject"] == agent.id]
        assert mine == ["revoked"]
    again = skep(home, "agent")
    assert (again.returncode, "revoked" in again.stderr) == (4, True)


def registrations(agent: AgentProcess) -> int:
    return sum("registered at" in line for line in agent.said())


def test_one_credential_for_all_processes(center: CenterProcess, tmp_path: Path) -> None:
    """Fault 65: the processes of a joined agent go by its id and their number."""
    home = tmp_path / "crew"
    token = skep(center.folder, "agent", "token").stdout.strip()
    assert skep(home, "agent", "join", center.url, "--token", token, "--id", "crew").returncode == 0
    agent = JoinedAgent(home, [center.url], home / "agent.token", {"SKEP_AGENT_PROCESSES": "2"})
    with agent:
        until_sync(lambda: registrations(agent) == 2)
        ids = {
            line["agent"]["registration"]["id"] for line in answer(center.folder, "agents")["items"]
        }
        assert {"crew.1", "crew.2"} <= ids
        assert agent.terminate() == 0


def test_tokens_on_the_command_line(center: CenterProcess) -> None:
    """Fault 50: made, used, listed and revoked by people."""
    made = answer(
        center.folder, "token", "add", "--role", "viewer", "--name", "zoe", "--expires", "30d"
    )
    listed = skep(center.folder, "token", "ls")
    assert (made["id"] in listed.stdout, made["token"] in listed.stdout) == (True, False)
    assert "in 30 d" in listed.stdout
    assert skep(center.folder, "token", "revoke", made["id"]).stdout == f"{made['id']} is revoked\n"
    assert made["id"] not in skep(center.folder, "token", "ls").stdout
    assert skep(center.folder, "token", "revoke", "nonsense").returncode == 3
    bad = skep(center.folder, "token", "add", "--role", "viewer", "--expires", "soon")
    assert (bad.returncode, "30d" in bad.stderr) == (2, True)


class _Odd(BaseHTTPRequestHandler):
    body = b"<html>somebody else's</html>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def odd() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def self_signed(tmp_path: Path, odd: HTTPServer) -> int:
    """The port of a server whose certificate no client trusts."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=elsewhere", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    odd.socket = context.wrap_socket(odd.socket, server_side=True)
    return odd.server_port


def refused(tmp_path: Path, url: str) -> str:
    """What join says about an address; the token must not have been tried."""
    done = skep(tmp_path / "new", "agent", "join", url, "--token", "skep_join_x")
    assert done.returncode == 1, done.stderr
    assert "token:" not in done.stdout
    return done.stdout


def test_what_is_in_the_way_is_named(
    center: CenterProcess, tmp_path: Path, odd: HTTPServer
) -> None:
    """Reach and TLS: each in words that say what to do."""
    assert "nothing listens" in refused(tmp_path, "http://127.0.0.1:1")
    assert "does not use TLS" in refused(tmp_path, center.url.replace("http:", "https:"))
    assert "is not a Skep center" in refused(tmp_path, f"http://127.0.0.1:{odd.server_port}")
    assert "cannot be resolved" in refused(tmp_path, "http://center.invalid")


@pytest.mark.parametrize(
    "body", [b'{"major": "1"}', b'{"version": "9", "protocol": "x", "oldest_protocol": 1}', b"[]"]
)
async def test_something_else_that_speaks_json(
    odd: HTTPServer, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """Other programs have a /version, too: they are told from a center, and nothing breaks."""
    monkeypatch.setattr(_Odd, "body", body)
    (look,) = await look_at(f"http://127.0.0.1:{odd.server_port}")
    assert (look.needed, look.finding.ok) == (True, False)
    assert "is not a Skep center" in look.finding.detail


async def test_one_center_of_several_is_enough(center: CenterProcess) -> None:
    """C9: a center that is down prevents no agent from joining; all of them join."""
    looks = await look_at_all([center.url, "http://127.0.0.1:1"])
    wrong = [look for look in looks if not look.finding.ok]
    assert [(look.finding.name, look.needed) for look in wrong] == [("reach", False)]
    (lone,) = await look_at_all(["http://127.0.0.1:1"])
    assert (lone.needed, lone.finding.ok) == (True, False)
    (ftp,) = await look_at_all(["ftp://127.0.0.1:1"])
    assert "http:// or https://" in ftp.finding.detail


def test_a_certificate_that_is_not_trusted(tmp_path: Path, self_signed: int) -> None:
    assert "not trusted here" in refused(tmp_path, f"https://127.0.0.1:{self_signed}")


def test_a_wrong_token_and_a_center_s_folder(center: CenterProcess, tmp_path: Path) -> None:
    done = skep(tmp_path / "new", "agent", "join", center.url, "--token", "skep_join_x", "--json")
    assert (done.returncode, checks(done)["token"]) == (1, False)
    gone = ("agent", "join", "http://127.0.0.1:1", "--token", "x", "--check", "--json")
    assert json.loads(skep(tmp_path / "new", *gone).stdout)["ok"] is False
    assert not (tmp_path / "new").exists(), "nothing is written before the token is good"
    own = skep(center.folder, "agent", "join", center.url, "--token", "skep_join_x")
    assert (own.returncode, "belongs to a center" in own.stderr) == (2, True)
    assert skep(tmp_path / "new", "agent", "join", center.url).returncode == 2


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("timed out", "firewall"),
        ("Server disconnected", "https"),
        ("[Errno -3] Temporary failure in name resolution", "DNS"),
        ("the moon is down", "check the address"),
    ],
)
def test_failures_are_explained(words: str, meaning: str) -> None:
    finding = explain("http://x", words)
    assert not finding.ok
    assert meaning in finding.detail + finding.fix


def test_skew_versions_and_plain_text() -> None:
    """The clock, the protocol and TLS, from what a center says about itself."""
    assert (clocks(0.5).ok, clocks(-60).ok, clocks(60).ok) == (True, False, False)
    assert "60.0 s behind" in clocks(60).detail
    about = Version("9", 9, 8, "c")
    assert (protocol(about).ok, "this agent" in protocol(about).fix) == (False, True)
    older = Version("0", 0, 0, "c")
    assert (protocol(older).ok, "the center first" in protocol(older).fix) == (False, True)
    assert protocol(Version("1", 2, 1, "c")).ok
    assert in_the_clear("https://skep.example").ok
    assert in_the_clear("http://127.0.0.1:1").ok
    assert not in_the_clear("http://skep.example").ok


def test_a_join_that_was_cut_off_goes_on_with_the_same_secret(tmp_path: Path) -> None:
    """Fault 18: killed between the center's answer and the file; the token is not lost."""
    folder = Folder(tmp_path / "new")
    folder.check(again=False)
    agent, _ = folder.propose("")
    assert not folder.folder.exists(), "a look writes nothing"
    first = agent, folder.prepare(agent)
    assert Folder(tmp_path / "new").propose("") == first
    assert Folder(tmp_path / "new").prepare(agent) == first[1]
    folder.keep(["http://a", "http://b"])
    assert (tmp_path / "new" / "center.url").read_text() == "http://a,http://b\n"
    with pytest.raises(ConfigurationError, match="--again"):
        folder.check(again=False)
    folder.check(again=True)
    again = folder.propose("other")
    assert (again[0], again[1] != first[1]) == ("other", True)
    assert folder.propose("")[0] == agent, "a look has not given it another id"
