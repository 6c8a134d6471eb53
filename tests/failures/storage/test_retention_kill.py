"""A center that is killed while it deletes: nothing that is kept has lost its bytes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec

from skep.archive.folder import FolderArchive
from skep.jobs.endings.retention import Retention
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.states import RunState
from skep.runtime.clock import SystemClock
from skep.settings import KeepSettings
from skep.store.ports.blocks import Placed
from skep.store.sql.store import SqlStore
from skep.testing.conformance.store.ground import assert_accounted
from skep.testing.conformance.store.leasing import leased_one
from skep.testing.conformance.store.reports import ids, settle, settlement

#: Deletes everything that is old, and dies before its n-th step: a transaction that writes,
#: or a file that is deleted.
DYING = """
import asyncio, os, signal, sys
from skep.archive import folder as archive_folder
from skep.jobs.endings.retention import Retention
from skep.runtime.clock import SystemClock
from skep.settings import KeepSettings
from skep.store.sql.store import SqlStore

place, fatal = sys.argv[1], int(sys.argv[2])
seen = 0

def step():
    global seen
    seen += 1
    if seen == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = SqlStore(f"sqlite:///{place}/skep.db")
    await store.open()
    write, delete = store.database.write, archive_folder.delete_segment

    async def dying_write(work):
        step()
        return await write(work)

    def dying_delete(*args):
        step()
        return delete(*args)

    store.database.write, archive_folder.delete_segment = dying_write, dying_delete
    archive = archive_folder.FolderArchive(__import__("pathlib").Path(place) / "archive", "c", 1)
    await archive.open(store.segments.committed_end)
    keep = KeepSettings(bodies_age=1.0, rows_age=1.0)
    await Retention("c", keep, store, archive, SystemClock()).step()
    await archive.close()
    await store.close()
    print("whole")

asyncio.run(main())
"""


async def fill(folder: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Four runs, each in segments of its own; the last two go on."""
    store = SqlStore(f"sqlite:///{folder / 'skep.db'}")
    archive = FolderArchive(folder / "archive", "c", 1)
    await store.open()
    await archive.open(store.segments.committed_end)
    rng, kept = Random(4), {}
    for run in ("old", "older", "open", "new"):
        block = await leased_one(store, 6, run)
        frames = rng.randbytes(600)
        (place,) = await archive.append([frames])
        outcomes = [
            Outcome(n, status=200, offset=100 * i, length=100) for i, n in enumerate(ids(block))
        ]
        placed = Placed(place.segment, place.offset)
        assert await settle(store, settlement(block, outcomes, frames=frames, placed=placed)) == [
            "stored"
        ]
        kept[run] = [(n, frames[100 * i : 100 * i + 100]) for i, n in enumerate(ids(block))]
        if run in {"old", "older"}:
            await store.runs.move(run, RunState.FINISHED, "", 1000.0)
    await archive.close()
    await store.close()
    return kept


def die(folder: Path, fatal: int) -> bool:
    """Whether it died; else it had come to its end."""
    command = [sys.executable, "-c", DYING, str(folder), str(fatal)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode in {0, -signal.SIGKILL}, ended.stderr
    return ended.returncode != 0


async def test_killed_at_every_step_of_deleting(tmp_path: Path) -> None:
    """D8, crash-safe: kept rows find their bytes, the ledger adds up, the rest goes at last."""
    kept = await fill(tmp_path)
    fatal, deaths = 1, 0
    while await asyncio.to_thread(die, tmp_path, fatal):
        deaths += 1
        fatal += 1
        await check(tmp_path, kept)
        assert deaths < 60
    assert deaths >= 2
    await check(tmp_path, kept)
    left = sorted(path.name for path in (tmp_path / "archive").glob("*.zst"))
    assert left == ["c-00000003.warc.zst", "c-00000004.warc.zst"]


async def check(folder: Path, kept: dict[str, list[tuple[int, bytes]]]) -> None:
    store = SqlStore(f"sqlite:///{folder / 'skep.db'}")
    archive = FolderArchive(folder / "archive", "c", 1)
    await store.open()
    await archive.open(store.segments.committed_end)
    try:
        await assert_accounted(store)
        for run in ("open", "new"):
            for number, data in kept[run]:
                (tried,) = await store.requests.attempts(number)
                assert await archive.read(tried.segment, tried.offset, tried.length) == data
        for run in ("old", "older"):
            ledger = await store.ledgers.read(run)
            assert msgspec.structs.replace(ledger, forgotten=0) == Ledger(accepted=6, done=6)
    finally:
        await archive.close()
        await store.close()


async def test_two_centers_delete_at_once(tmp_path: Path) -> None:
    """Several centers, one archive: everything goes once, and is counted once."""
    await fill(tmp_path)
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    other = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    archives = [FolderArchive(tmp_path / "archive", name, 1) for name in ("c", "d")]
    keep = KeepSettings(rows_age=1.0)
    for place, archive in zip((store, other), archives, strict=True):
        await place.open()
        await archive.open(place.segments.committed_end)
    both = [
        Retention(name, keep, place, archive, SystemClock()).step()
        for name, place, archive in zip("cd", (store, other), archives, strict=True)
    ]
    one, two = await asyncio.gather(*both)
    assert one.rows + two.rows == 12
    await assert_accounted(store)
    for place, archive in zip((store, other), archives, strict=True):
        await archive.close()
        await place.close()
