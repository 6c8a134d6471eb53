"""Archive folders that go away, disks that fail, and files that are damaged (R6, R9, S13, U3)."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from skep.errors import DiskFailed, DiskFull, StoreDamaged
from skep.store.sql.engine.dialects.mysql import MysqlDialect
from skep.store.sql.engine.dialects.postgresql import PostgresDialect
from skep.store.sql.engine.dialects.sqlite import SqliteDialect
from skep.testing.grounds.centers import RunningCenter, archived, running_center
from skep.testing.polling import until

pytestmark = pytest.mark.fault


def delete(folder: Path) -> None:
    shutil.rmtree(folder)


def move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def unmount(folder: Path) -> None:
    """As seen from above: another folder is at the path."""
    folder.rename(folder.with_name("moved"))
    folder.mkdir()


def delete_segment(folder: Path) -> None:
    max(folder.glob("*.warc.zst")).unlink()


async def checks(center: RunningCenter) -> dict[str, str]:
    """What /readyz finds wrong."""
    answer = await center.admin.get("/readyz?verbose")
    assert answer.status in {200, 503}, answer.content
    found = msgspec.json.decode(answer.content)["checks"]
    return {check["name"]: check["detail"] for check in found if not check["ok"]}


@pytest.mark.parametrize("lose", [delete, move, unmount, delete_segment])
async def test_an_archive_that_is_lost_acknowledges_nothing(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    """R6: the next report is refused with 503, nothing is leased, people are told; what was
    refused is taken when the folder is back."""
    archive = tmp_path / "archive"
    async with running_center(tmp_path) as center:
        await center.archive_pages(4)
        await center.put("r", [{"uri": f"http://a.test/more/{n}"} for n in range(4)])
        await center.dispatched()
        hand = center.hand_agent()
        (block,) = await hand.lease(want=1)
        await asyncio.to_thread(lose, archive)
        report, bodies = archived(block)
        refused = await hand.call("block", {"agent": "a1", "blocks": [report]})
        assert (refused.status, refused.problem().code) == (503, "archive_down")
        await until(lambda: center.services.disk.archive_trouble, seconds=10)
        assert await hand.lease(want=1) == []
        assert str(archive) in (await checks(center))["archive"]

        async def alerted() -> bool:
            alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
            return "archive_down" in [alert["kind"] for alert in alerts]

        await until(alerted, seconds=10)
        if lose is move:
            archive.with_name("moved").rename(archive)
            await until(lambda: not center.services.disk.archive_trouble, seconds=10)
            assert await hand.report(report) == ["stored"]
            request = report.outcomes[0].id
            shown = await center.admin.get(f"/api/v1/requests/{request}/body")
            assert shown.content == bodies[0]
            assert await hand.lease(want=1, wait=10)


@pytest.mark.parametrize("lost", ["skep.db", "skep.db-wal"])
async def test_a_store_file_that_is_lost_acknowledges_nothing(tmp_path: Path, lost: str) -> None:
    """R6: SQLite goes on in a file that no path leads to; the next call is refused with 503, and
    readiness says why. A file that comes back is used again."""
    file = tmp_path / lost
    async with running_center(tmp_path) as center:
        await center.open_run("r")
        await center.put("r", ["http://a.test/1"])
        file.rename(tmp_path / "away")
        refused = await center.admin.post("/api/v1/runs/r/requests", ["http://a.test/2"])
        assert (refused.status, refused.problem().code) == (503, "store_down")
        assert str(file) in (await checks(center))["store"]
        (tmp_path / "away").rename(file)
        assert (await center.anyone.get("/readyz")).status == 200
        await center.put("r", ["http://a.test/2", "http://a.test/3"])
        assert (await center.ledger("r")).accepted == 3


async def test_a_damaged_record_is_our_error_not_the_callers(tmp_path: Path) -> None:
    """R9: 500 with a code of its own, not 400."""
    async with running_center(tmp_path) as center:
        await center.archive_pages(2)
        request = (await center.admin.get("/api/v1/requests?run=r")).json()["items"][0]["id"]
        (segment,) = (tmp_path / "archive").glob("*.warc.zst")
        data = bytearray(segment.read_bytes())
        for place in range(len(data)):
            data[place] ^= 0xFF
        segment.write_bytes(data)
        answer = await center.admin.get(f"/api/v1/requests/{request}/body")
        assert (answer.status, answer.problem().code) == (500, "archive_damaged")


class _Error(Exception):
    """As drivers raise it."""

    def __init__(self, **codes: object) -> None:
        super().__init__(codes.pop("number", ""), "told by the engine")
        self.__dict__.update(codes)


@pytest.mark.parametrize(
    ("dialect", "raised", "expected"),
    [
        (SqliteDialect(), _Error(sqlite_errorname="SQLITE_FULL"), DiskFull),
        (SqliteDialect(), _Error(sqlite_errorname="SQLITE_READONLY"), DiskFailed),
        (SqliteDialect(), _Error(sqlite_errorname="SQLITE_IOERR_WRITE"), DiskFailed),
        (SqliteDialect(), _Error(sqlite_errorname="SQLITE_CORRUPT"), StoreDamaged),
        (PostgresDialect(), _Error(sqlstate="53100"), DiskFull),
        (PostgresDialect(), _Error(sqlstate="25006"), DiskFailed),
        (MysqlDialect(), _Error(number=1021), DiskFull),
        (MysqlDialect(), _Error(number=1290), DiskFailed),
    ],
)
def test_a_disk_that_fails_is_not_called_full(
    dialect: SqliteDialect, raised: Exception, expected: type[Exception]
) -> None:
    """R9: the true reason."""
    found = dialect.explain(sa.exc.DatabaseError("x", None, raised))
    assert type(found) is expected


async def test_a_read_only_store_is_named_and_recovers(tmp_path: Path) -> None:
    """R9: 503 `disk_failed` while the database cannot be written."""
    async with running_center(tmp_path) as center:
        await center.open_run("r")
        center.services.disk.heard(DiskFailed("the sqlite store cannot write: read-only"))
        refused = await center.admin.post("/requestqueue/r", [{"uri": "http://a.test/"}])
        assert (refused.status, refused.problem().code) == (503, "disk_failed")
        assert "read-only" in (await checks(center))["disk"]
        assert await center.metric("skep_disk_full") == 0
        center.services.disk._refused_at = -1e9
        await until(lambda: not center.services.disk.trouble, seconds=10)
        assert await checks(center) == {}


def test_a_data_folder_that_existed_becomes_private(tmp_path: Path) -> None:
    """S13: 0755 and 0644 before, 0700 and 0600 after the start; new ones at once."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    sqlite3.connect(folder / "skep.db").close()
    (folder / "skep.db").touch()
    (folder / "skep.db").chmod(0o644)

    async def once() -> None:
        async with running_center(folder) as center:
            await center.archive_pages(1)
            modes = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("skep.db*")}
            assert set(modes.values()) == {0o600}, modes

    asyncio.run(once())
    assert folder.stat().st_mode & 0o777 == 0o700
    small = ("center.name", "center.url", "admin.token", "agent.token")
    assert {(folder / name).stat().st_mode & 0o777 for name in small} == {0o600}
    assert list(folder.glob("*.new")) == []
