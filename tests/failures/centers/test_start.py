"""Starts that cannot succeed, or not yet: a bounded wait, a sentence, an exit code (R1, R9, U3)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skep.testing import servers
from skep.testing.grounds.centers import running_center
from skep.testing.needs import unless_absent
from skep.testing.polling import until_sync
from skep.testing.processes import QUICK, CenterProcess
from skep.testing.small_disk import fill, small_disk

pytestmark = pytest.mark.fault

#: Seconds from the line that says what is wrong to the end of the process.
AT_ONCE = 5.0
UNREACHABLE, USAGE = 6, 2
NOWHERE = "redis://127.0.0.1:1/0"


def skep(*words: object, **env: str) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SKEP_")}
    return subprocess.Popen(
        [sys.executable, "-m", "skep", *map(str, words)],
        env={**inherited, **QUICK, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(*words: object, **env: str) -> tuple[int, str]:
    """(exit code, stderr) of a command that must end as soon as it has said why."""
    with skep(*words, **env) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("error: "):
                break
        try:
            _, rest = process.communicate(timeout=AT_ONCE)
        finally:
            process.kill()
    return process.returncode, said + rest


@pytest.fixture
def redis() -> Iterator[servers.Redis]:
    with servers.redis() as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[servers.Postgres]:
    with servers.postgres() as server:
        yield server


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        (f"bus.url={NOWHERE}", "bus"),
        ("store.url=postgresql://u@127.0.0.1:1/d", "store"),
        ("archive.url=s3://bucket/a?endpoint=http://127.0.0.1:1", "archive"),
    ],
)
def test_a_center_gives_up_after_the_time_that_was_set(
    tmp_path: Path, setting: str, what: str
) -> None:
    """R1: it says what it waits for, ends with 6, and nothing holds the folder afterwards."""
    place = ["--data", tmp_path / "x", "--port", 0, "--set", "center.start_wait=1"]
    login = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "r"}
    code, said = ended("center", *place, "--set", setting, **login)
    assert code == UNREACHABLE, said
    assert f"waiting up to 1 s for the {what} (center.start_wait)" in said
    assert "gave up after 1 s" in said
    with CenterProcess(tmp_path / "x") as center:
        assert center.ready()


def start_late(server: servers.Server, center: CenterProcess) -> None:
    """Start a center while its server is away, and the server when the center says so."""
    server.kill()

    def answer() -> None:
        until_sync(lambda: center.log.exists() and "waiting up to 30 s" in center.log.read_text())
        server.start()

    later = threading.Thread(target=answer, daemon=True)
    later.start()
    with center:
        assert center.ready()
    later.join()


def test_a_redis_that_starts_after_its_center(tmp_path: Path, redis: servers.Redis) -> None:
    """R1: the ordinary case, two services that a machine starts side by side."""
    start_late(redis, CenterProcess(tmp_path, {"SKEP_BUS_URL": redis.url}))


def test_a_postgres_that_starts_after_its_center(
    tmp_path: Path, postgres: servers.Postgres
) -> None:
    """R9, last sentence: refused at first, then "the database system is starting up"."""
    env = {"SKEP_STORE_URL": postgres.fresh_database()}
    start_late(postgres, CenterProcess(tmp_path, env))


def test_a_center_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """R1: SIGTERM does not wait for the servers."""
    with skep("center", "--data", tmp_path, "--port", 0, "--bus", NOWHERE) as process:
        assert process.stderr is not None
        assert any("waiting up to" in line for line in process.stderr)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
    assert time.monotonic() - began < 3


def worked(folder: Path) -> Path:
    """The newest segment of a center that has archived something."""

    async def once() -> None:
        async with running_center(folder) as center:
            await center.archive_pages(4)

    asyncio.run(once())
    return max((folder / "archive").glob("*.warc.zst"))


def shorten(folder: Path) -> None:
    os.truncate(worked(folder), 700)


def remove(folder: Path) -> None:
    worked(folder).unlink()


def spoil_token(folder: Path) -> None:
    (folder / "admin.token").write_bytes(b"\xff\xfe\x00garbage")


def spoil_name(folder: Path) -> None:
    worked(folder)
    (folder / "center.name").write_bytes(b"\xff\xfe")


def empty_name(folder: Path) -> None:
    worked(folder)
    (folder / "center.name").write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (shorten, ".warc.zst"),
        (remove, ".warc.zst"),
        (spoil_token, "admin.token"),
        (spoil_name, "center.name"),
        (empty_name, "center.name"),
    ],
)
def test_every_other_error_ends_the_start_at_once(
    tmp_path: Path, spoil: Callable[[Path], None], names: str
) -> None:
    """R1, R2, R9: one sentence that names the file, within five seconds."""
    spoil(tmp_path)
    code, said = ended("center", "--data", tmp_path, "--port", 0)
    assert code == USAGE, said
    last = said.strip().splitlines()[-1]
    assert last.startswith("error: "), said
    assert names in last
    assert "Traceback" not in said


def test_a_port_that_is_taken_ends_the_start_at_once(tmp_path: Path) -> None:
    """R1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = ended("center", "--data", tmp_path, "--port", port)
    assert (code, "Traceback" in said) == (USAGE, False), said


async def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    """R1: no thread that writes, no lock: the same process can start it again at once."""
    before = set(threading.enumerate())  # those of centers that other tests share
    with pytest.raises(Exception, match="gave up after"):
        async with running_center(tmp_path, bus_url=NOWHERE, center_start_wait=0.2):
            pass
    new = set(threading.enumerate()) - before
    assert not [t for t in new if t.name in {"store-write", "skep-archive"}]
    async with running_center(tmp_path) as center:
        assert (await center.anyone.get("/readyz")).status == 200


def test_a_name_that_no_segment_carries_is_made_anew(tmp_path: Path) -> None:
    """R2: an empty `center.name`, as a power cut of an older version left it."""
    (tmp_path / "center.name").write_bytes(b"")
    (tmp_path / "admin.token").write_bytes(b"")
    with CenterProcess(tmp_path) as center:
        assert center.ready()
        assert any("center.name is empty" in line for line in center.said())
    assert (tmp_path / "center.name").read_text().startswith("center-")


def test_a_damaged_database_is_a_sentence(tmp_path: Path) -> None:
    """U3: `skep up` says what to do; `doctor` does not send people back to `skep up`."""
    (tmp_path / "skep.db").write_bytes(b"SQLite format 3\0" + b"\x13" * 8000)
    code, said = ended("up", "--data", tmp_path, "--port", 0)
    assert (code, "Traceback" in said) == (1, False), said
    assert "damaged" in said
    assert "skep restore" in said
    with skep("doctor", "--data", tmp_path) as process:
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"{tmp_path / 'skep.db'} is damaged" in told
    assert "fix the store first" in told


def test_a_full_disk_at_the_first_start_is_a_sentence(tmp_path: Path) -> None:
    """U3, R2: nothing is left behind, and with room again the same folder starts."""
    with unless_absent(), small_disk(tmp_path / "disk", megabytes=4) as disk:
        fill(disk / "filler", leave=0)
        code, said = ended("up", "--data", disk / "data", "--port", 0)
        left = sorted(path.name for path in disk.rglob("*"))
        (disk / "filler").unlink()
        with CenterProcess(disk / "data", {"SKEP_KEEP_FREE_BYTES": "0"}) as center:
            assert center.ready()
    assert code in {1, UNREACHABLE}, said
    assert ("Traceback" in said, "No space" in said) == (False, True), said
    assert not [name for name in left if "token" in name or name.endswith(".new")], left


def test_a_wrong_selector_in_the_shell_is_a_sentence() -> None:
    """U3: what was raised, and in which line; exit code 1."""
    with skep("shell", "-c", 'from parsel import Selector; Selector("<p>").css("[[")') as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert ("Traceback" in said, "line 1 of the code" in said) == (False, True), said
