"""Packages: the same files give the same bytes; what leads out is refused (A8)."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import zipfile
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.errors import InvalidInput
from skep.jobs.apps.git_checkout import GitPacker
from skep.jobs.apps.package_file import pack_place
from skep.jobs.apps.packing import Packer
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.needs import needs

LIMIT = 2**20


def tool(folder: Path) -> Path:
    (folder / "pack" / "__pycache__").mkdir(parents=True)
    (folder / "pack" / "a.py").write_text("print(1)\n")
    (folder / "pack" / "__pycache__" / "a.pyc").write_bytes(b"x")
    run = folder / "run.sh"
    run.write_text("#!/bin/sh\n")
    run.chmod(0o755)
    (folder / "link.sh").symlink_to("run.sh")
    return folder


def test_a_folder_is_the_same_bytes_everywhere(tmp_path: Path) -> None:
    one, two = tool(tmp_path / "one"), tool(tmp_path / "two")
    os.utime(two / "pack" / "a.py", (1, 1))
    (two / "pack" / "a.py").chmod(0o600)
    places = [tmp_path / "s1", tmp_path / "s2"]
    for place in places:
        place.mkdir()
    packed = [pack_place(f, LIMIT, s) for f, s in zip((one, two), places, strict=True)]
    assert packed[0].package == packed[1].package
    assert packed[0].package.kind == "zip"
    with zipfile.ZipFile(packed[0].path) as archive:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    assert modes == {"link.sh": 0o755, "pack/a.py": 0o644, "run.sh": 0o755}


def test_links_that_lead_out(tmp_path: Path) -> None:
    """Fault 53: neither a file nor a folder outside gets into a package, nor a device."""
    (tmp_path / "secret").write_text("x")
    for name, leads_to in (("file", "../secret"), ("folder", ".."), ("device", "/dev/zero")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "link").symlink_to(leads_to)
        with pytest.raises(InvalidInput, match="is a link"):
            pack_place(folder, LIMIT, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "last").mkdir()
    os.mkfifo(tmp_path / "last" / "pipe")
    with pytest.raises(InvalidInput, match="pipe is not a file"):
        pack_place(tmp_path / "last", LIMIT, tmp_path)


def test_the_limit_holds_before_and_after_packing(tmp_path: Path) -> None:
    folder = tmp_path / "big"
    folder.mkdir()
    (folder / "zeros").write_bytes(bytes(5000))
    with pytest.raises(InvalidInput, match=r"exceeds 4999 bytes, the limit of jobs\.package_bytes"):
        pack_place(folder, 4999, tmp_path)
    made = tmp_path / "x.zip"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a", os.urandom(5000))
    with pytest.raises(InvalidInput, match="exceeds 4999 bytes"):
        pack_place(made, 4999, tmp_path)


def test_wheels_and_zips_stay_as_they_are(tmp_path: Path) -> None:
    wheel = tmp_path / "app-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("app.py", "x = 1\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    packed = pack_place(wheel, LIMIT, scratch)
    assert packed.path.read_bytes() == wheel.read_bytes()
    assert packed.path != wheel, "the copy cannot change"
    assert packed.package.digest == sha256(wheel.read_bytes()).hexdigest()
    assert (packed.package.kind, packed.package.name) == ("wheel", wheel.name)
    (tmp_path / "no.zip").write_text("no zip")
    with pytest.raises(InvalidInput, match="is not a zip"):
        pack_place(tmp_path / "no.zip", LIMIT, scratch)


# -- git, with the real program


def git(folder: Path, *arguments: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *who, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    needs("git")
    folder = tmp_path / "jobs" / "repo"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "main.py").write_text("print(1)\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "v1")
    (folder / "main.py").write_text("print(2)\n")
    git(folder, "commit", "--quiet", "-am", "two")
    return folder


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await opened.open()
    yield opened
    await opened.close()


def packer(store: SqlStore, folder: Path, limit: int = LIMIT, seconds: float = 60.0) -> Packer:
    return Packer(
        store, folder, limit, GitPacker(EgressPolicy(), os.environ, seconds), ManualClock()
    )


async def test_a_commit_is_packed_and_kept(store: SqlStore, repository: Path) -> None:
    """A tag, a branch and a commit; the same commit is the same package."""
    made = packer(store, repository.parent)
    first = git(repository, "rev-parse", "v1")
    packages = [await made.pack(f"git+file://{repository}@{ref}") for ref in ("v1", first, "main")]
    assert packages[0] == packages[1] != packages[2]
    digest = packages[2].digest
    data = await store.packages.chunk(digest, 0)
    assert sha256(data).hexdigest() == digest
    (repository.parent / "x.zip").write_bytes(data)
    with zipfile.ZipFile(repository.parent / "x.zip") as archive:
        assert archive.read("main.py") == b"print(2)\n"
    assert await made.pack("x.zip") == packages[2], "the same bytes by another way"


async def test_what_git_cannot_have(store: SqlStore, repository: Path, tmp_path: Path) -> None:
    """Fault 52: no prompt, nothing outside the folder, no address of an inner network."""
    made = packer(store, repository.parent)
    with pytest.raises(InvalidInput, match="git cannot fetch none of file:"):
        await made.pack(f"git+file://{repository}@none")
    with pytest.raises(InvalidInput, match="is outside the folder for jobs"):
        await packer(store, tmp_path / "jobs" / "repo").pack(f"git+file://{tmp_path}@main")
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1 is not allowed \(loopback\)"):
        await made.pack("git+https://127.0.0.1:1/a@main")
    with pytest.raises(InvalidInput, match="exceeds 50 bytes"):
        await packer(store, repository.parent, limit=50).pack("repo")


async def test_hooks_and_attributes_of_a_repository_run_nothing(
    store: SqlStore, repository: Path, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    for name in ("post-checkout", "pre-auto-gc", "reference-transaction", "post-merge"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
        hook.chmod(0o755)
    git(repository, "config", "uploadpack.packObjectsHook", f"touch {proof}; exec")
    await packer(store, repository.parent).pack(f"git+file://{repository}@main")
    assert not proof.exists()


async def test_a_server_that_says_nothing(store: SqlStore, repository: Path) -> None:
    """The time limit ends git with everything that it started. The kernel accepts the connection
    without an answer: no task of ours is left behind to be collected in another test."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        egress = EgressPolicy(allow=("127.0.0.0/8",))
        slow = GitPacker(egress, os.environ, seconds=0.5)
        made = Packer(store, repository.parent, LIMIT, slow, ManualClock())
        with pytest.raises(InvalidInput, match=r"git took longer than 0\.5 s"):
            await made.pack(f"git+git://127.0.0.1:{port}/a@main")
        server.setblocking(False)
        # A busy machine may not even have let git come that far.
        with suppress(BlockingIOError):
            asked, _ = server.accept()
            with asked:
                asked.settimeout(30)
                while asked.recv(4096):
                    pass  # what git had asked; it ends because git has ended


class Asked:
    """A server on loopback that notes the first bytes of each caller and hangs up."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.port = server.getsockname()[1]

    def first(self, expected: bytes) -> bytes:
        """What the first caller says, up to what is expected; git sends it in pieces."""
        self._server.settimeout(30)
        caller, _ = self._server.accept()
        with caller:
            caller.settimeout(30)
            said = more = caller.recv(4096)
            while more and expected not in said:
                more = caller.recv(4096)
                said += more
        return said


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://git.rebound.invalid:{port}/a", b"git.rebound.invalid"),
        ("git://git.rebound.invalid:{port}/a", b"git-upload-pack /a\0host=git.rebound.invalid:"),
        pytest.param(
            "ssh://git@git.rebound.invalid:{port}/a",
            b"SSH-2.0-",
            marks=pytest.mark.needs("ssh"),
        ),
    ],
)
async def test_git_does_not_resolve_a_name_again(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, says: bytes
) -> None:
    """S13: the name leads to the server when it is judged, and nowhere when git would ask;
    git connects to the address that was judged, under the name."""
    lookup = socket.getaddrinfo

    def once(host: str, *rest: Any, **more: Any) -> Any:
        known = "127.0.0.1" if host == "git.rebound.invalid" else host
        return lookup(known, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", once)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = Asked(server)
        git_packer = GitPacker(EgressPolicy(allow=("127.0.0.0/8",)), os.environ, seconds=60)
        made = Packer(store, tmp_path, LIMIT, git_packer, ManualClock())
        first = asyncio.create_task(asyncio.to_thread(asked.first, says))
        with pytest.raises(InvalidInput, match="git cannot fetch main of"):
            await made.pack(f"git+{url.format(port=asked.port)}@main")
        assert says in await first
