"""A backup that is made while pages arrive, and backups that were tampered with (U9)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.archive.frames import Exchange, FrameMaker
from skep.embed.backup.make import back_up
from skep.embed.backup.manifest import MANIFEST_LIMIT
from skep.embed.backup.restore import restore
from skep.errors import ConfigurationError
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.settings import Settings, load
from skep.store.dump import schema_of
from skep.store.sql.engine.migrate import HEAD, upgrade
from skep.store.sql.store import SqlStore
from skep.testing import servers
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.polling import until

#: A segment ends after a few pages, so that many begin and end while the backup is made.
SMALL = {"archive_segment_bytes": 65_536}


def quiet(_: str) -> None:
    """Progress is not of interest here."""


def settings_of(folder: Path, **flags: Any) -> Settings:
    dotted = {name.replace("_", ".", 1): value for name, value in flags.items()}
    return load(flags={"data": str(folder), **dotted})


async def crawl(center: RunningCenter, stop: asyncio.Event) -> None:
    """Pages of many hosts, with bodies that do not shrink."""
    rng, hand, number = Random(5), center.hand_agent(), 0
    maker = FrameMaker(SystemClock(), rng)
    await hand.register()
    await center.open_run("r", block_size=2)
    while not stop.is_set():
        await center.put("r", [{"uri": f"http://h{number}-{n}.test/"} for n in range(8)])
        number += 1
        await center.dispatched()
        for block in await hand.lease(want=8):
            frames, outcomes = b"", []
            for work in works_of(block):
                page = Exchange(work.uri, status=200, reason="OK", body=rng.randbytes(20_000))
                frame = maker.exchange_frames(page)
                outcomes.append(Outcome(work.id, "", 200, offset=len(frames), length=len(frame)))
                frames += frame
            report = BlockReport(block.id, block.token, outcomes, frames=frames)
            assert await hand.report(report) == ["stored"]
            hand.held.pop(block.id)


async def some_pages(center: RunningCenter) -> bool:
    return (await center.ledger()).done > 20


async def bodies_of(center: RunningCenter) -> int:
    """Every body that a row names can be read; how many there are."""
    read, after = 0, ""
    while True:
        answer = await center.admin.get(f"/api/v1/requests?state=done&limit=200{after}")
        rows = answer.json()["items"]
        for row in rows:
            body = await center.admin.get(f"/api/v1/requests/{row['id']}/body")
            assert body.status == 200, (row, body.content)
            read += 1
        if len(rows) < 200:
            return read
        after = f"&after={rows[-1]['id']}"


async def backups_while_crawling(tmp_path: Path, count: int, **flags: Any) -> None:
    settings = settings_of(tmp_path / "live", **flags)
    async with running_center(tmp_path / "live", **SMALL, **flags) as center:
        stop = asyncio.Event()
        work = asyncio.create_task(crawl(center, stop))
        try:
            await until(lambda: some_pages(center))
            for number in range(count):
                target = tmp_path / f"b{number}"
                await asyncio.to_thread(back_up, settings, target, SystemClock(), quiet)
        finally:
            stop.set()
            await work


async def restored_is_whole(tmp_path: Path, number: int, **flags: Any) -> None:
    place = tmp_path / f"new{number}"
    await restore(settings_of(place, **flags), tmp_path / f"b{number}", SystemClock(), quiet)
    async with running_center(place, **SMALL, **flags) as center:
        ledger = await center.ledger()
        assert await bodies_of(center) == ledger.done > 0
        kinds = {
            alert["kind"] for alert in (await center.admin.get("/api/v1/alerts")).json()["items"]
        }
        assert not {kind for kind in kinds if "archive" in kind}, kinds
        assert not list((place / "archive").glob("*.unknown-*"))
        await center.archive_pages(8, run="new", agent="a1")


async def test_a_backup_while_pages_arrive_is_consistent(tmp_path: Path) -> None:
    """U9: every body that a row names is there, and nothing is that the store does not know: a
    restored center does not begin with an alert."""
    await backups_while_crawling(tmp_path, 5)
    for number in range(5):
        await restored_is_whole(tmp_path, number)


async def test_a_backup_of_postgresql_while_pages_arrive_is_consistent(tmp_path: Path) -> None:
    """U9: the dump is older than the copies of segments."""
    with servers.postgres() as server:
        await backups_while_crawling(tmp_path, 2, store_url=server.fresh_database())
        for number in range(2):
            await restored_is_whole(tmp_path, number, store_url=server.fresh_database())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup."""
    place = tmp_path_factory.mktemp("whole")

    async def make() -> None:
        async with running_center(place / "live") as center:
            await center.archive_pages(4)
            settings = settings_of(place / "live")
            await asyncio.to_thread(back_up, settings, place / "b", SystemClock(), quiet)

    asyncio.run(make())
    return place / "b"


@pytest.fixture
def backup(tmp_path: Path, whole: Path) -> Path:
    """One of this test alone."""
    return Path(shutil.copytree(whole, tmp_path / "b"))


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def rewrite(folder: Path, **changes: object) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest(folder) | changes))


def add(folder: Path, name: str) -> None:
    """A file that the manifest names rightly."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    files = [*manifest(folder)["files"], {"path": name, "size": 1, "sha256": digest}]
    rewrite(folder, files=files)


def without(folder: Path, part: str) -> None:
    files = [file for file in manifest(folder)["files"] if not file["path"].startswith(part)]
    rewrite(folder, files=files)


def of_another_center(folder: Path) -> None:
    """Two backups in one folder, the manifest made anew."""
    path = folder / "data" / "center.name"
    path.write_text("another\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    kept = [file for file in manifest(folder)["files"] if file["path"] != "data/center.name"]
    new = {"path": "data/center.name", "size": path.stat().st_size, "sha256": digest}
    rewrite(folder, files=[*kept, new])


def huge(folder: Path) -> None:
    os.truncate(folder / "manifest.json", MANIFEST_LIMIT + 1)


def deep(folder: Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)


def linked_part(folder: Path) -> None:
    (folder / "archive").rename(folder / "elsewhere")
    (folder / "archive").symlink_to(folder / "elsewhere")


SPOILED: list[tuple[Callable[[Path], None], str]] = [
    (lambda at: add(at, "data/center.url"), "unexpected file"),
    (lambda at: add(at, "data/skep.db"), "unexpected file"),
    (lambda at: add(at, "data/restore.unfinished"), "unexpected file"),
    (lambda at: add(at, "archive/below/x-00000001.warc.zst"), "unexpected file"),
    (lambda at: add(at, "archive/x.lock"), "unexpected file"),
    (lambda at: rewrite(at, files=manifest(at)["files"] * 2), "twice"),
    (lambda at: rewrite(at, files=[{"path": "/etc/x", "size": 1, "sha256": ""}]), "outside"),
    (lambda at: rewrite(at, files=[{"path": "data//x", "size": 1, "sha256": ""}]), "outside"),
    (
        lambda at: rewrite(at, files=[{"path": "data/secrets/../../x", "size": 1, "sha256": ""}]),
        "outside",
    ),
    (lambda at: rewrite(at, format=2, files=7), "upgrade Skep"),
    (lambda at: rewrite(at, store="oracle"), "lists no oracle store"),
    (lambda at: rewrite(at, files=[]), "lists no sqlite store"),
    (lambda at: without(at, "data/"), "lists no center.name"),
    (of_another_center, "put together from two backups"),
    (huge, "is larger than"),
    (linked_part, "symbolic link"),
    (deep, "damaged"),
]


@pytest.mark.parametrize("number", range(len(SPOILED)))
async def test_a_manifest_that_was_tampered_with_is_refused(
    tmp_path: Path, backup: Path, number: int
) -> None:
    """U9: with a sentence, before anything is written."""
    spoil, says = SPOILED[number]
    spoil(backup)
    with pytest.raises(ConfigurationError, match=says):
        await restore(settings_of(tmp_path / "new"), backup, SystemClock(), quiet)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["center.lock"]


def packed(backup: Path, target: Path, twice: bool = False, link: bool = False) -> Path:
    with tarfile.open(target, "w") as tar:
        for path in sorted(backup.rglob("*")):
            if path.is_file():
                tar.add(path, path.relative_to(backup).as_posix())
        if twice:
            tar.add(backup / "data" / "center.name", "data/center.name")
        if link:
            made = tarfile.TarInfo("data/admin.token")
            made.type, made.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(made)
    return target


def gzipped(backup: Path, target: Path) -> None:
    with tarfile.open(target, "w:gz") as tar:
        tar.add(backup, "")


def sparse(_: Path, target: Path) -> None:
    """A terabyte in one block, as GNU tar writes a file of holes."""
    made = tarfile.TarInfo("archive/x-00000001.warc.zst")
    made.type, made.size = tarfile.GNUTYPE_SPARSE, 0
    head = bytearray(made.tobuf(tarfile.GNU_FORMAT))
    head[483:495] = b"16000000000\0"
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    target.write_bytes(bytes(head) + bytes(1024))


@pytest.mark.parametrize(
    ("make", "says"), [(gzipped, "not a .tar file"), (sparse, "non-file entry")]
)
async def test_a_tar_that_unpacks_to_more_than_it_has_is_refused(
    tmp_path: Path, backup: Path, make: Callable[[Path, Path], None], says: str
) -> None:
    """U9: neither compressed nor with holes: a small file cannot fill the disk."""
    make(backup, tmp_path / "b.tar")
    with pytest.raises(ConfigurationError, match=says) as raised:
        await restore(settings_of(tmp_path / "new"), tmp_path / "b.tar", SystemClock(), quiet)
    assert "\n" not in raised.value.detail


@pytest.mark.parametrize(("how", "says"), [("twice", "exists"), ("link", "non-file entry")])
async def test_names_twice_and_links_in_a_tar_are_refused(
    tmp_path: Path, backup: Path, how: str, says: str
) -> None:
    """U9: nothing is written over, and no link is followed."""
    (backup / "data" / "admin.token").unlink()
    source = packed(backup, tmp_path / "b.tar", **{how: True})
    with pytest.raises(ConfigurationError, match=says):
        await restore(settings_of(tmp_path / "new"), source, SystemClock(), quiet)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["center.lock"]


def names_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_a_restore_leaves_the_backup_as_it_is(tmp_path: Path, backup: Path) -> None:
    """U9: it may be on a disk that is read-only, and in a folder with an odd name."""
    odd = Path(await asyncio.to_thread(shutil.move, backup, tmp_path / "50% #1?"))
    before = names_in(odd)
    await restore(settings_of(tmp_path / "new 100% #"), odd, SystemClock(), quiet)
    assert names_in(odd) == before
    async with running_center(tmp_path / "new 100% #") as center:
        assert await bodies_of(center) == 4
        live = center.local.center.services.settings
        await asyncio.to_thread(back_up, live, tmp_path / "again", SystemClock(), quiet)


async def test_a_restore_that_fails_leaves_the_archive_empty(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U9: an archive outside of the data folder too."""

    def fail(*_: object) -> None:
        raise ConfigurationError("the store fails")

    monkeypatch.setattr("skep.embed.backup.restore.leave_gaps", fail)
    settings = settings_of(tmp_path / "new", archive_url=str(tmp_path / "outside"))
    with pytest.raises(ConfigurationError, match="the store fails"):
        await restore(settings, backup, SystemClock(), quiet)
    assert list((tmp_path / "outside").iterdir()) == []


async def test_a_kill_just_before_the_end_does_not_block_the_next_try(
    tmp_path: Path, backup: Path, whole: Path
) -> None:
    """U9: what is complete and not renamed yet is replaced by the next backup of that name."""
    shutil.copytree(backup, tmp_path / "x.partial")
    settings = settings_of(whole.parent / "live")
    await asyncio.to_thread(back_up, settings, tmp_path / "x", SystemClock(), quiet)
    assert not (tmp_path / "x.partial").exists()


def older_center(folder: Path) -> None:
    """A data folder as an earlier version left it: schema 0014, one run."""
    folder.mkdir(mode=0o700)
    (folder / "center.name").write_text("older\n")
    store = SqlStore(f"sqlite:///{folder / 'skep.db'}")
    with store.database.engine.connect() as connection:
        upgrade(store.database, connection, "0014")
        connection.exec_driver_sql(
            "INSERT INTO runs (id, job, state, settings, created_at)"
            " VALUES ('r', 'j', 'running', x'80', 1)"
        )
        connection.commit()
    store.database.engine.dispose()


async def test_a_backup_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path) -> None:
    """U9: the way back of an upgrade, and a backup of another version that can be read."""
    older_center(tmp_path / "live")
    live, new = settings_of(tmp_path / "live"), settings_of(tmp_path / "new")
    made = await asyncio.to_thread(back_up, live, tmp_path / "b", SystemClock(), quiet)
    assert made.schema == "0014"
    await restore(new, tmp_path / "b", SystemClock(), quiet)
    assert await asyncio.to_thread(schema_of, new.store_url) == HEAD
    async with running_center(tmp_path / "new") as center:
        assert (await center.admin.get("/api/v1/runs/r")).json()["run"]["state"] == "running"
        assert (await center.ledger()).accepted == 0
