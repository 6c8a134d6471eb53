"""Polls of git repositories: real servers, and answers of hostile ones (D6)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from random import Random

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.git.pkt_line import Mark, mark, packet
from skep.downloaders.git.poll import PollFailed, RefsPoller, kept
from skep.downloaders.git.program import GitProgram
from skep.downloaders.git.remote import parse_remote
from skep.downloaders.http import HttpKind
from skep.runtime.clock import SystemClock
from skep.testing.needs import needs
from skep.testing.polling import until
from skep.testing.private import free_port
from skep.testing.servers.git_http import GitServer, git_server

LOOPBACK = EgressPolicy(allow=("127.0.0.0/8",))


def git(folder: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *who, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("git")
    folder = tmp_path_factory.mktemp("repositories")
    work = folder / "work"
    work.mkdir()
    git(work, "init", "--quiet", "--initial-branch=main")
    git(work, "commit", "--quiet", "--allow-empty", "-m", "one")
    git(work, "tag", "-a", "-m", "tag", "v1")
    git(work, "branch", "topic/x")
    git(work, "update-ref", "refs/pull/1/head", "HEAD")
    git(folder, "clone", "--quiet", "--mirror", str(work), "repo.git")
    return folder


@pytest.fixture(scope="module")
def server(repositories: Path) -> Iterator[GitServer]:
    with git_server(repositories) as running:
        yield running


@pytest.fixture
async def poller(server: GitServer) -> AsyncIterator[RefsPoller]:
    async with opened(server) as one:
        yield one


def opened(server: GitServer, egress: EgressPolicy = LOOPBACK, **bounds: float) -> RefsPoller:
    http = HttpKind(
        SystemClock(), Random(1), egress,
        ca_file=server.ca_file, keep=kept, as_received=lambda: False,
    )  # fmt: skip
    program = GitProgram(os.environ, ca_file=server.ca_file)
    return RefsPoller(http, program, egress, **bounds)  # type: ignore[arg-type]  # numbers


def expected(repositories: Path) -> dict[str, str]:
    lines = git(repositories / "repo.git", "show-ref", "--heads", "--tags").splitlines()
    return {name: commit for commit, name in (line.split() for line in lines)}


async def test_refs_of_a_real_server(
    poller: RefsPoller, server: GitServer, repositories: Path
) -> None:
    """M1: `git http-backend` behind nginx, protocol version 2; no refs of pull requests."""
    refs = await poller.poll(parse_remote(f"{server.url}/repo.git"))
    assert refs.ids == expected(repositories)
    assert refs.head == "refs/heads/main"
    assert "refs/pull/1/head" not in refs.ids


async def test_a_push_changes_the_digest(
    poller: RefsPoller, server: GitServer, repositories: Path
) -> None:
    remote = parse_remote(f"{server.url}/repo.git")
    before = await poller.poll(remote)
    assert (await poller.poll(remote)).digest == before.digest
    git(repositories / "work", "commit", "--quiet", "--allow-empty", "-m", "two")
    git(repositories / "work", "push", "--quiet", str(repositories / "repo.git"), "main")
    after = await poller.poll(remote)
    assert after.digest != before.digest
    assert after.ids == expected(repositories)


async def test_every_way_gives_the_same_digest(
    poller: RefsPoller, server: GitServer, repositories: Path
) -> None:
    """The fallback for servers without version 2, and for other protocols, is `git ls-remote`."""
    newest = await poller.poll(parse_remote(f"{server.url}/repo.git"))
    server.speak_version_2(False)
    try:
        old = await poller.poll(parse_remote(f"{server.url}/repo.git"))
    finally:
        server.speak_version_2(True)
    local = await poller.poll(parse_remote(f"file://{repositories}/repo.git"))
    assert newest.digest == old.digest == local.digest


@pytest.fixture
def daemon_port(repositories: Path) -> Iterator[int]:
    port = free_port()
    safe = {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    command = ["git", "daemon", "--export-all", "--reuseaddr", "--listen=127.0.0.1"]
    daemon = subprocess.Popen(
        [*command, f"--port={port}", f"--base-path={repositories}", str(repositories)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GIT_CONFIG_COUNT": "1", **safe},
    )
    yield port
    os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()


async def test_a_git_daemon(poller: RefsPoller, repositories: Path, daemon_port: int) -> None:
    """M1: the protocol of git itself; its server is pinned to the address that was checked."""
    remote = parse_remote(f"git://127.0.0.1:{daemon_port}/repo.git")

    async def listed() -> dict[str, str]:
        try:
            return (await poller.poll(remote)).ids
        except PollFailed:  # it has not begun to listen
            return {}

    assert await until(listed, bool) == expected(repositories)
    with pytest.raises(PollFailed) as missing:
        await poller.poll(parse_remote(f"git://127.0.0.1:{daemon_port}/none.git"))
    assert missing.value.kind == "not_found"


async def test_a_missing_repository(poller: RefsPoller, server: GitServer) -> None:
    """M7: a deleted upstream is known as such."""
    with pytest.raises(PollFailed, match="answered 404") as failed:
        await poller.poll(parse_remote(f"{server.url}/none.git"))
    assert failed.value.kind == "not_found"


async def test_an_address_that_is_not_allowed(server: GitServer) -> None:
    """S13: the address is checked by the engine and before git starts."""
    async with opened(server, EgressPolicy()) as strict:
        for url in (server.url, "git://127.0.0.1:9418"):
            with pytest.raises(PollFailed, match=r"127\.0\.0\.1 is not allowed") as failed:
                await strict.poll(parse_remote(f"{url}/repo.git"))
            assert failed.value.kind == "transient"


def says(status: int, kind: str, body: bytes = b"", **headers: str) -> object:
    def answer(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


RESULT = "application/x-git-upload-pack-result"
ESCAPING = packet(f"{'1' * 40} refs/heads/../../x") + mark(Mark.FLUSH)
MANY = b"".join(packet(f"{'1' * 40} refs/heads/{n}") for n in range(2001)) + mark(Mark.FLUSH)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (says(200, "text/html", b"<html>login</html>"), "transient", "sent text/html"),
        (
            says(200, "text/plain", b"1" * 40 + b"\trefs/heads/main\n"),
            "transient",
            "smart protocol",
        ),
        (says(200, RESULT, b"0009"), "transient", "smart protocol"),
        (says(200, RESULT, ESCAPING), "transient", "smart protocol"),
        (says(200, RESULT, MANY), "too_large", "more than 1000 refs"),
        (says(200, RESULT, bytes(3 * 2**20)), "too_large", "too large"),
        (says(401, "text/plain"), "refused", "answered 401"),
        (says(410, "text/plain"), "not_found", "answered 410"),
        (says(503, "text/plain"), "transient", "503"),
    ],
    ids=["html", "dumb", "cut", "escaping", "many", "large", "login", "gone", "busy"],
)
async def test_hostile_answers(server: GitServer, answer: object, kind: str, text: str) -> None:
    """D6: each gets a clear error; nothing is left hanging."""
    server.answers["/hostile.git"] = answer  # type: ignore[assignment]  # made by `says`
    async with opened(server, most_refs=1000, most_bytes=2**20) as poller:
        with pytest.raises(PollFailed, match=text) as failed:
            await poller.poll(parse_remote(f"{server.url}/hostile.git"))
    assert failed.value.kind == kind


async def test_a_server_that_asks_to_wait(poller: RefsPoller, server: GitServer) -> None:
    """M3: Retry-After is reported to the caller."""
    server.answers["/busy.git"] = says(429, "text/plain", Retry_After="77")  # type: ignore[assignment]
    with pytest.raises(PollFailed) as failed:
        await poller.poll(parse_remote(f"{server.url}/busy.git"))
    assert (failed.value.kind, failed.value.retry_after) == ("transient", 77.0)


async def test_a_redirect_is_reported_and_not_followed(
    poller: RefsPoller, server: GitServer
) -> None:
    """M7: a moved upstream is noticed."""
    target = "https://elsewhere.example/repo.git/git-upload-pack"
    server.answers["/moved.git"] = says(301, "text/plain", Location=target)  # type: ignore[assignment]
    with pytest.raises(PollFailed, match="it moved") as failed:
        await poller.poll(parse_remote(f"{server.url}/moved.git"))
    assert failed.value.moved == target


async def test_an_answer_without_end(server: GitServer) -> None:
    """D6: the bound of bytes ends it, also when each packet is valid."""

    def endless(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", RESULT)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(packet(f"{'1' * 40} refs/heads/a") * 1000)
        except OSError:
            return

    server.answers["/endless.git"] = endless
    async with opened(server, most_bytes=2**20) as poller:
        with pytest.raises(PollFailed, match="too large") as failed:
            await poller.poll(parse_remote(f"{server.url}/endless.git"))
    assert failed.value.kind == "too_large"


async def test_credentials_reach_the_server_by_header_only(
    poller: RefsPoller, server: GitServer
) -> None:
    """M7: a login is sent with the request; it is in no URL and no error."""
    seen: list[str] = []

    def noted(handler: BaseHTTPRequestHandler, _: bytes) -> None:
        seen.append(handler.headers.get("Authorization", ""))
        handler.send_error(403)

    server.answers["/private.git"] = noted
    with pytest.raises(PollFailed) as failed:
        await poller.poll(
            parse_remote(f"{server.url}/private.git"), authorization="Bearer s3cret-token"
        )
    assert seen == ["Bearer s3cret-token"]
    assert failed.value.kind == "refused"
    assert "s3cret" not in str(failed.value)
