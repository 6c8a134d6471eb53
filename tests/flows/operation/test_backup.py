"""Backup while a center runs, and restore into an empty folder (U9)."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from skep.cli.main import run
from skep.testing import servers
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.needs import unless_absent
from skep.testing.polling import until
from skep.testing.small_disk import fill, small_disk

PAGES = 10


def skep(*words: object, code: int = 0) -> dict[str, Any]:
    """The JSON of a command, or {"said": stderr} when another exit code is expected."""
    shown, said = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(raw, "utf-8", write_through=True) for raw in (shown, said))
    with redirect_stdout(out), redirect_stderr(err):
        ended = run([*map(str, words), "--json"])
    one_line = " ".join(said.getvalue().decode().split())
    assert ended == code, one_line
    found: dict[str, Any] = {"said": one_line} if code else json.loads(shown.getvalue())
    return found


def refused(*words: object, code: int = 2) -> str:
    return str(skep(*words, code=code)["said"])


@asynccontextmanager
async def working(folder: Path, **flags: Any) -> AsyncIterator[tuple[RunningCenter, list[bytes]]]:
    """A center with archived pages, waiting requests, and work in an agent's hands."""
    async with running_center(folder, **flags) as center:
        bodies = await center.archive_pages(PAGES)
        await center.put("r", [{"uri": f"http://a.test/later/{n}"} for n in range(6)])
        await center.dispatched()
        assert await center.hand_agent().lease(want=1, wait=10)
        (folder / "secrets").mkdir(exist_ok=True)
        (folder / "secrets" / "mail").write_text("hush")
        yield center, bodies


async def same_center(folder: Path, bodies: list[bytes], **flags: Any) -> None:
    """What a restored center must be able to do."""
    async with running_center(folder, **flags) as center:
        ledger = await center.ledger()
        assert (ledger.done, ledger.leased) == (PAGES, 0)
        assert ledger.waiting + ledger.queued + ledger.delayed == 6
        rows = (await center.admin.get("/api/v1/requests?run=r&state=done")).json()["items"]
        shown = [await center.admin.get(f"/api/v1/requests/{row['id']}/body") for row in rows]
        assert sorted(answer.content for answer in shown) == sorted(bodies)
        again = await center.hand_agent().register()
        assert again.session
        await center.archive_pages(2, run="new")


@pytest.mark.parametrize("target", ["copy", "copy.tar"])
async def test_a_backup_of_a_running_center_is_a_center(tmp_path: Path, target: str) -> None:
    """U9: the ledger adds up, leased work waits again, every body can be read."""
    async with working(tmp_path / "live") as (_, bodies):
        made = await asyncio.to_thread(
            skep, "backup", tmp_path / target, "--data", tmp_path / "live"
        )
    assert made["manifest"]["center"] == (tmp_path / "live" / "center.name").read_text().strip()
    assert (tmp_path / target).stat().st_mode & 0o077 == 0
    assert not (tmp_path / f"{target}.partial").exists()
    await asyncio.to_thread(skep, "restore", tmp_path / target, "--data", tmp_path / "new")
    assert (tmp_path / "new" / "secrets" / "mail").read_text() == "hush"
    assert (tmp_path / "new" / "skep.db").stat().st_mode & 0o777 == 0o600
    await same_center(tmp_path / "new", bodies)


async def test_parts_can_be_left_out(tmp_path: Path) -> None:
    """U9: without the archive and without secrets it is a center with new tokens and a new name."""
    async with working(tmp_path / "live"):
        words = ["backup", tmp_path / "b", "--without-archive", "--without-secrets"]
        made = await asyncio.to_thread(skep, *words, "--data", tmp_path / "live")
    paths = [file["path"] for file in made["manifest"]["files"]]
    assert paths == ["data/center.name", "store/store.db"]
    await asyncio.to_thread(skep, "restore", tmp_path / "b", "--data", tmp_path / "new")
    async with running_center(tmp_path / "new") as center:
        assert center.services.name != made["manifest"]["center"]
        assert (await center.ledger()).done == PAGES
        await center.archive_pages(2, run="new")


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[servers.Postgres | servers.MariaDB]:
    with getattr(servers, request.param)() as server:
        yield server


async def test_servers_are_dumped_and_loaded(
    tmp_path: Path, database: servers.Postgres | servers.MariaDB
) -> None:
    """U9: pg_dump and mariadb-dump, into an empty database of the same kind only."""
    url, fresh = database.fresh_database(), database.fresh_database()
    async with working(tmp_path / "live", store_url=url) as (_, bodies):
        place = ["--data", tmp_path / "live", "--set", f"store.url={url}"]
        await asyncio.to_thread(skep, "backup", tmp_path / "b", *place)
    words = ["restore", tmp_path / "b", "--data", tmp_path / "new"]
    said = await asyncio.to_thread(refused, *words, "--set", f"store.url={url}")
    assert "is not empty" in said
    assert "store.url names a sqlite store" in await asyncio.to_thread(refused, *words)
    await asyncio.to_thread(skep, *words, "--set", f"store.url={fresh}")
    await same_center(tmp_path / "new", bodies, store_url=fresh)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data folder, `live`, and its backup, `b`."""
    place = tmp_path_factory.mktemp("whole")

    async def make() -> None:
        async with working(place / "live"):
            await asyncio.to_thread(skep, "backup", place / "b", "--data", place / "live")

    asyncio.run(make())
    return place


@pytest.fixture
def backup(tmp_path: Path, whole: Path) -> Path:
    """Both, of this test alone."""
    for name in ("live", "b"):
        shutil.copytree(whole / name, tmp_path / name)
    return tmp_path / "b"


def change_byte(folder: Path) -> None:
    path = next((folder / "archive").iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def cut_short(folder: Path) -> None:
    path = folder / "store" / "store.db"
    os.truncate(path, path.stat().st_size // 2)


def lose_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def edit(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def newer_schema(folder: Path) -> None:
    edit(folder, schema="9999")


def newer_format(folder: Path) -> None:
    edit(folder, format=2)


def leave_folder(folder: Path) -> None:
    files = [{"path": "data/../../out", "size": 1, "sha256": "0"}]
    edit(folder, files=files)


def mix_centers(folder: Path) -> None:
    (folder / "data" / "center.name").write_text("center-of-somebody\n")


def follow_link(folder: Path) -> None:
    path = folder / "data" / "admin.token"
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (change_byte, "was changed"),
        (cut_short, "bytes instead of"),
        (lose_manifest, "is not a complete backup"),
        (newer_schema, "upgrade Skep"),
        (newer_format, "upgrade Skep"),
        (leave_folder, "outside of itself"),
        (mix_centers, "is damaged, nothing was restored"),
        (follow_link, "symbolic link"),
    ],
)
def test_what_is_not_whole_is_refused(
    tmp_path: Path, backup: Path, spoil: Callable[[Path], None], says: str
) -> None:
    """U9: one sentence, and the folder stays empty."""
    spoil(backup)
    assert says in refused("restore", backup, "--data", tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["center.lock"]


def test_a_tar_that_leaves_the_folder_or_was_cut_is_refused(tmp_path: Path, backup: Path) -> None:
    """U9: paths, links and half a file."""
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(backup / "manifest.json", "data/../../../evil")
    assert "outside of itself" in refused(
        "restore", tmp_path / "evil.tar", "--data", tmp_path / "n"
    )
    skep("backup", tmp_path / "good.tar", "--data", tmp_path / "live")
    os.truncate(tmp_path / "good.tar", (tmp_path / "good.tar").stat().st_size // 2)
    assert "complete backup" in refused("restore", tmp_path / "good.tar", "--data", tmp_path / "n")
    assert not (tmp_path / "evil").exists()


async def test_targets_that_are_in_use_are_refused(tmp_path: Path, backup: Path) -> None:
    """U9: a running center, a folder with something in it, a backup that exists."""
    async with running_center(tmp_path / "other"):
        said = await asyncio.to_thread(refused, "restore", backup, "--data", tmp_path / "other")
        assert "a center runs in" in said
    said = await asyncio.to_thread(refused, "restore", backup, "--data", tmp_path / "other")
    assert "is not empty" in said
    live = ["--data", tmp_path / "live"]
    assert "exists" in await asyncio.to_thread(refused, "backup", backup, *live)
    inside = tmp_path / "live" / "b"
    assert "inside the data" in await asyncio.to_thread(refused, "backup", inside, *live)


def test_a_full_disk_is_refused_with_a_sentence(tmp_path: Path, backup: Path) -> None:
    """U9: for the backup and for the restore; nothing stays."""
    with unless_absent(), small_disk(tmp_path / "disk", megabytes=2) as disk:
        fill(disk / "filler", leave=40_000)
        said = refused("backup", disk / "b", "--data", tmp_path / "live", code=6)
        assert "no space left" in said or "cannot copy" in said
        assert "free" in refused("restore", backup, "--data", disk / "new", code=6)
        assert sorted(path.name for path in disk.iterdir()) == ["filler", "new"]


def test_a_killed_backup_never_looks_whole(tmp_path: Path, backup: Path) -> None:
    """U9: kill -9 at several moments; what is left is refused, and the next try cleans it up."""
    cut_short = 0
    for number in range(3):
        target = tmp_path / f"k{number}"
        command = [sys.executable, "-m", "skep", "backup", "-v", str(target)]
        command += ["--data", str(tmp_path / "live")]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for _ in range(number + 1):
                process.stderr.readline()
            process.send_signal(signal.SIGKILL)
        partial = Path(f"{target}.partial")
        if target.exists():  # it was done before the signal came: then it is whole
            assert not partial.exists()
            skep("restore", target, "--data", tmp_path / f"whole{number}")
            continue
        cut_short += 1
        if partial.exists():
            assert "is not a complete backup" in refused(
                "restore", partial, "--data", tmp_path / "n"
            )
        skep("backup", target, "--data", tmp_path / "live")
        assert not partial.exists()
    assert cut_short
    assert backup.exists()


async def test_an_interrupted_restore_does_not_start(tmp_path: Path, backup: Path) -> None:
    """U9: what kill -9 leaves is named, not started."""
    await asyncio.to_thread(skep, "restore", backup, "--data", tmp_path / "new")
    (tmp_path / "new" / "restore.unfinished").touch()
    with pytest.raises(Exception, match="was interrupted"):
        async with running_center(tmp_path / "new"):
            pass


async def test_a_copied_data_folder_does_not_talk_to_the_live_center(tmp_path: Path) -> None:
    """U9: a copy says so; a moved folder is itself; a copy that was started is one of its own."""
    async with running_center(tmp_path / "live"):
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
        said = await asyncio.to_thread(refused, "info", "--data", tmp_path / "copy", code=6)
        assert f"is a copy of {tmp_path / 'live'}" in said
        await asyncio.to_thread(skep, "info", "--data", tmp_path / "live")
        async with running_center(tmp_path / "copy"):
            await asyncio.to_thread(skep, "info", "--data", tmp_path / "copy")


async def test_due_times_that_passed_follow_catch_up(tmp_path: Path) -> None:
    """U9: `one` fires once for all that passed between backup and restore, `skip` not at all."""
    async with running_center(tmp_path / "live") as center:
        for name in ("one", "skip"):
            schedule = {"every": 2, "catch_up": name, "grace": 1}
            job = {"requests": ["http://127.0.0.1:9/"], "schedule": schedule}
            answer = await center.admin.put(f"/api/v1/jobs/{name}", job)
            assert answer.status < 300, answer.content
        await asyncio.to_thread(skep, "backup", tmp_path / "b", "--data", tmp_path / "live")
        began = time.time()
    await asyncio.to_thread(skep, "restore", tmp_path / "b", "--data", tmp_path / "new")
    await asyncio.sleep(max(0.0, 5 - (time.time() - began)))
    async with running_center(tmp_path / "new") as center:

        async def fired() -> dict[str, Any]:
            paths = {name: f"/api/v1/jobs/{name}/fires" for name in ("one", "skip")}
            answers = {name: await center.admin.get(path) for name, path in paths.items()}
            return {name: answer.json()["items"] for name, answer in answers.items()}

        fires = await until(fired, lambda found: all(found.values()), seconds=20, step=0.1)
    assert "missed" in {fire["state"] for fire in fires["skip"]}, fires
    assert {fire["state"] for fire in fires["one"]} & {"coalesced", "late", "fired"}, fires
