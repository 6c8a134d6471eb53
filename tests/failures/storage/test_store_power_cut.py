"""Fault 24: a power cut at any moment loses nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from skep.store.sql.engine.dialects.sqlite import prepare_sqlite
from skep.store.sql.store import SqlStore
from skep.testing import power_cut
from skep.testing.conformance.store.ground import NOW, assert_accounted, new_run, row
from skep.testing.conformance.store.leasing import lease, pack
from skep.testing.conformance.store.reports import done, ids, settle, settlement
from skep.testing.fleet import tell


def store_on(disk: power_cut.Disk, path: Path, *pragmas: str) -> SqlStore:
    """The real store, on a disk that forgets what was not synced."""
    vfs = power_cut.DiskVfs(f"disk-{id(disk)}", disk)
    store = SqlStore("sqlite://")
    engine = sa.create_engine(
        "sqlite://",
        poolclass=StaticPool,
        creator=lambda: power_cut.Connection(str(path), f"disk-{id(disk)}"),
    )
    sa.event.listen(engine, "connect", prepare_sqlite)

    def prepare(connection: power_cut.Connection, _record: object) -> None:
        for pragma in ("PRAGMA wal_autocheckpoint=40", *pragmas):
            connection.execute(pragma)

    sa.event.listen(engine, "connect", prepare)
    sa.event.listen(engine, "close", lambda *_: vfs)  # the file system outlives its files
    store.database.engine = engine
    return store


async def use(store: SqlStore, disk: power_cut.Disk) -> None:
    """Callers in parallel, each told when its request is safe; some work is done too."""
    await store.open()
    await new_run(store)

    async def submit(name: str) -> None:
        accepted = await store.requests.accept("run", [row(name)], NOW)
        assert accepted.new == 1
        disk.acknowledged.add(row(name).uri)

    for turn in range(30):
        await asyncio.gather(*(submit(f"{turn}-{number}") for number in range(8)))
        for block in await lease(store, await pack(store, limit=5)):
            await settle(store, settlement(block, done(ids(block))))
    disk.cut()
    await store.close()


def lay_out(image: power_cut.Image, folder: Path) -> set[str]:
    """Puts the image on a real disk; the requests that SQLite finds in it."""
    folder.mkdir()
    for name, content in image.files.items():
        if name.endswith((".db", "-wal", "-journal")):
            (folder / name).write_bytes(content)
    with sqlite3.connect(folder / "skep.db") as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
        found = set()
        if "requests" in tables:
            found = {uri for (uri,) in raw.execute("SELECT uri FROM requests")}
    raw.close()
    return found


async def check(image: power_cut.Image, folder: Path) -> set[str]:
    """Returns the acknowledged requests that are gone."""
    found = await asyncio.to_thread(lay_out, image, folder)
    store = SqlStore(f"sqlite:///{folder / 'skep.db'}")
    await store.open()
    await assert_accounted(store)
    await store.close()
    return image.acknowledged - found


@pytest.mark.parametrize(
    ("images", "chance"), [(50, 0.03), pytest.param(200, 0.12, marks=pytest.mark.slow)]
)
async def test_nothing_acknowledged_is_lost_in_a_power_cut(
    tmp_path: Path, images: int, chance: float
) -> None:
    disk = power_cut.Disk(Random(24), chance=chance)
    await use(store_on(disk, tmp_path / "skep.db"), disk)
    assert len(disk.images) >= images
    assert disk.syncs > 30
    chosen = [*Random(1).sample(disk.images[:-1], images - 1), disk.images[-1]]
    for number, image in enumerate(chosen):
        assert await check(image, tmp_path / str(number)) == set()
    assert any(image.acknowledged for image in chosen)
    tell("24", power_cuts=images, integrity_ok=images, acknowledged_lost=0)


async def test_the_cut_is_real(tmp_path: Path) -> None:
    """With less care than ours the same cuts lose acknowledged requests."""
    disk = power_cut.Disk(Random(24), chance=0.03)
    careless = store_on(disk, tmp_path / "skep.db", "PRAGMA synchronous=NORMAL")
    await use(careless, disk)
    images = disk.images[::10]
    lost = [await check(image, tmp_path / str(n)) for n, image in enumerate(images)]
    assert any(lost)
