"""Monitoring while centers are killed and frozen: every change is told once, nothing doubles."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import aiohttp
import pytest

from skep.center.center_name import FILE as NAME_FILE
from skep.model.monitoring.series import ACCEPTED
from skep.store.sql.store import SqlStore
from skep.testing.conformance.store.ground import new_run
from skep.testing.polling import until
from skep.testing.processes import CenterProcess

#: Nothing listens there: notices stay in the outbox, where they can be counted.
NOTICES = {"SKEP_NOTICES_WEBHOOKS": "http://127.0.0.1:9/hook"}


def lease_holder(store: SqlStore) -> str:
    query = "SELECT holder FROM monitor_leases WHERE name = 'monitoring'"
    with store.database.engine.connect() as connection:
        return str(connection.exec_driver_sql(query).scalar() or "")


async def leader(store: SqlStore, centers: list[CenterProcess]) -> CenterProcess:
    """The center whose process holds the lease."""
    await until(lambda: lease_holder(store), seconds=60)
    holder = lease_holder(store)
    (found,) = [one for one in centers if holder.startswith(f"{name_of(one)}-")]
    return found


def name_of(center: CenterProcess) -> str:
    return (center.folder / NAME_FILE).read_text().strip()[:31]


async def accept(center: CenterProcess, run: str, numbers: range) -> None:
    headers = {"Authorization": f"Bearer {center.admin_token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = [{"uri": f"http://a.test/{run}/{n}"} for n in numbers]
        async with session.post(f"{center.url}/requestqueue/{run}", json=body) as answer:
            assert answer.status < 300, await answer.text()


async def counted(store: SqlStore) -> float:
    rows = await store.monitoring.series.read(10, "", 0, 2**40, 10_000)
    return sum(row.cells.get(ACCEPTED, {}).get("", (0.0, 0))[0] for row in rows)


@pytest.mark.slow
async def test_kill_and_freeze_tell_once_and_double_nothing(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """Two centers: the one that leads is killed with -9, the next one is frozen for a minute and
    continues. Each alert is told once, and no figure is counted twice."""
    env = {**shared, **NOTICES}
    store = SqlStore(shared["SKEP_STORE_URL"])
    with (
        CenterProcess(tmp_path / "one", env) as one,
        CenterProcess(tmp_path / "two", env) as two,
    ):
        await store.open()
        centers = [one, two]
        first = await leader(store, centers)
        (other,) = [center for center in centers if center is not first]
        await new_run(store, "r")
        await accept(first, "r", range(100))
        await accept(other, "r", range(100, 250))
        await until(lambda: at_least(store, 250), seconds=60)
        await store.alerts.raise_("archive_lost", "a", "gone", time.time())
        await asyncio.to_thread(first.kill)
        await until(lambda: told(store, 1), seconds=90)
        assert await leader(store, centers) is other
        await asyncio.to_thread(first.start)
        os.kill(other.pid, signal.SIGSTOP)
        try:
            await store.alerts.raise_("archive_lost", "b", "gone", time.time())
            await until(lambda: told(store, 2), seconds=90)
        finally:
            os.kill(other.pid, signal.SIGCONT)
        await accept(other, "r", range(250, 300))
        await until(lambda: at_least(store, 300), seconds=60)
        assert await counted(store) == 300
        assert len(await store.notices.recent(100)) == 2
        assert await store.monitoring.alerts.untold(10) == []
    await store.close()


async def at_least(store: SqlStore, requests: int) -> bool:
    return await counted(store) >= requests


async def told(store: SqlStore, notices: int) -> bool:
    return len(await store.notices.recent(100)) >= notices
