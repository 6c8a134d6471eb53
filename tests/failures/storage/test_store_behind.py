"""A store that knows less than the archive: nothing is deleted, people are told (R3)."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.errors import ConfigurationError
from skep.testing.grounds.centers import RunningCenter, running_center

pytestmark = pytest.mark.fault
PAGES = 12


async def crashed(folder: Path) -> tuple[Path, list[bytes]]:
    """A data folder as kill -9 leaves it: everything in the WAL; and the bodies in it."""
    left = folder / "left"
    async with running_center(folder / "live") as center:
        await center.open_run("before")
        with sqlite3.connect(folder / "live" / "skep.db") as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.close()
        bodies = await center.archive_pages(PAGES)
        shutil.copytree(folder / "live", left)
    for lock in left.rglob("*.lock"):
        lock.unlink()
    return left, bodies


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "archive").glob("*.warc.zst"))


def delete_wal(folder: Path) -> None:
    (folder / "skep.db-wal").unlink()


def flip_wal(folder: Path) -> None:
    wal = folder / "skep.db-wal"
    data = bytearray(wal.read_bytes())
    half = len(data) // 4
    data[half : half + 64] = bytes(byte ^ 0xFF for byte in data[half : half + 64])
    wal.write_bytes(data)


async def alerts(center: RunningCenter) -> dict[str, str]:
    found = (await center.admin.get("/api/v1/alerts")).json()["items"]
    return {alert["kind"]: alert["detail"] for alert in found}


@pytest.mark.parametrize("lose", [delete_wal, flip_wal])
async def test_bytes_that_the_store_lost_are_set_aside(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """R3: as many bytes as before, an alert with the number, and new work goes on."""
    folder, _ = await crashed(tmp_path)
    before = size_of(folder)
    lose(folder)
    async with running_center(folder) as center:
        told = (await alerts(center))["archive_unknown"]
        (aside,) = (folder / "archive").glob("*.unknown-*.warc.zst")
        assert aside.name in told
        number = int(told.removeprefix("the store does not know ").partition(" ")[0])
        assert 0 < number < before
        assert size_of(folder) >= before
        await center.archive_pages(2, run="after")
    assert run_rebuild(folder)["added"] > 0


@pytest.mark.parametrize("empty", [True, False])
async def test_an_empty_store_beside_segments_is_refused(tmp_path: Path, empty: bool) -> None:
    """R3: a store that was deleted or emptied; rebuild makes every body readable again."""
    folder, bodies = await crashed(tmp_path)
    before = size_of(folder)
    for path in folder.glob("skep.db*"):
        path.unlink()
    if empty:
        (folder / "skep.db").touch()
    with pytest.raises(ConfigurationError, match="the store is empty"):
        async with running_center(folder):
            pass
    assert size_of(folder) == before
    said = run_rebuild(folder)
    assert (said["pages"], said["added"]) == (PAGES, PAGES)
    assert run_rebuild(folder)["added"] == 0
    async with running_center(folder) as center:
        ledger = await center.ledger(said["run"])
        assert (ledger.done, ledger.unaccounted) == (PAGES, 0)
        rows = (await center.admin.get(f"/api/v1/requests?run={said['run']}")).json()["items"]
        shown = [await center.admin.get(f"/api/v1/requests/{row['id']}/body") for row in rows]
        assert sorted(answer.content for answer in shown) == sorted(bodies)
        assert "archive_unknown" not in await alerts(center)


async def test_a_flag_starts_with_an_empty_store(tmp_path: Path) -> None:
    """R3: nothing is deleted then either."""
    folder, _ = await crashed(tmp_path)
    before = size_of(folder)
    for path in folder.glob("skep.db*"):
        path.unlink()
    async with running_center(folder, archive_allow_empty_store=True) as center:
        assert "archive_unknown" in await alerts(center)
    assert size_of(folder) >= before


def run_rebuild(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "skep", "archive", "rebuild", "--data", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found
