"""Bulk operations while centers are killed with kill -9: PostgreSQL, Redis, two centers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.model.failures.dead_requests import FailureFilter
from skep.model.operations import OPEN_OPERATIONS, OperationState
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.runtime.clock import SystemClock
from skep.store.sql.store import SqlStore
from skep.testing.grounds.dead_requests import add_dead
from skep.testing.polling import until
from skep.testing.processes import CenterProcess
from skep.wire.api.operations import OperationView, StartOperation
from skep.wire.client import CenterClient

LEASE = {"SKEP_JOBS_LEASE_SECONDS": "2"}


@pytest.mark.parametrize(
    ("count", "kills"), [(6000, 2), pytest.param(40_000, 8, marks=pytest.mark.slow)]
)
async def test_killed_centers_neither_lose_nor_repeat(
    tmp_path: Path, shared: dict[str, str], count: int, kills: int
) -> None:
    """R3: the center that works on the operation is killed again and again; each request is
    changed once, and the results add up."""
    env = {**shared, **LEASE}
    with (
        CenterProcess(tmp_path / "one", env) as one,
        CenterProcess(tmp_path / "two", env) as two,
    ):
        centers = {"one": one, "two": two}
        store = SqlStore(shared["SKEP_STORE_URL"])
        await store.open()
        await store.runs.create(Run("r", "", RunState.RUNNING, RunSettings(), time.time()))
        await add_dead(store, "r", count, time.time() - 1)
        urls = [one.url, two.url]
        async with CenterClient(urls, one.admin_token, SystemClock(), Random(1)) as client:
            number = await start(client, rate=count // 6)
            for kill in range(kills):
                held = await progressed(client, number, count * (kill + 1) // (kills + 2))
                names = await by_name(centers)
                center = names[held.holder]
                await asyncio.to_thread(center.kill)
                await asyncio.to_thread(center.start)
            ended = await until(
                lambda: client.api.operations.show(number),
                lambda view: view.state not in OPEN_OPERATIONS,
                seconds=60,
            )
        ledger = await store.ledgers.audit("r")
        leases = (await store.operations.get(number)).lease
        await store.close()
    assert ended.state is OperationState.DONE, ended.error
    results = [(result.outcome, result.reason, result.count) for result in ended.results]
    assert results == [("done", "", count)]
    assert (ledger.cancelled, ledger.dead, ledger.unaccounted) == (count, 0, 0)
    assert leases > 1, "another center took over"


async def test_a_center_killed_during_an_export_leaves_each_line_once(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """R3: the other center continues the file; no line is missing and none is there twice."""
    env, count = {**shared, **LEASE}, 1500
    with (
        CenterProcess(tmp_path / "one", env) as one,
        CenterProcess(tmp_path / "two", env) as two,
    ):
        centers = {"one": one, "two": two}
        store = SqlStore(shared["SKEP_STORE_URL"])
        await store.open()
        await store.runs.create(Run("r", "", RunState.RUNNING, RunSettings(), time.time()))
        await add_dead(store, "r", count, time.time() - 1)
        async with CenterClient([one.url, two.url], one.admin_token, SystemClock(), Random(1)) as c:
            body = StartOperation("failures", "export", "run:r", rate=250, dry_run=False)
            started = (await c.api.operations.start(body)).operation
            assert started is not None
            held = await progressed(c, started.id, 500)
            await asyncio.to_thread((await by_name(centers))[held.holder].kill)
            ended = await until(
                lambda: c.api.operations.show(started.id),
                lambda view: view.state not in OPEN_OPERATIONS,
                seconds=60,
            )
            async with c.api.operations.file(started.id) as found:
                content = await found.read()
        ids = [row.id for row in await store.failures.find(FailureFilter(run="r"), 0, count)]
        leases = (await store.operations.get(started.id)).lease
        await store.close()
    assert (ended.state, leases > 1) == (OperationState.DONE, True), ended.error
    assert ended.file is not None
    lines = [msgspec.json.decode(line)["id"] for line in content.splitlines()]
    assert (sorted(lines), ended.file.lines) == (ids, count)


async def start(client: CenterClient, rate: int) -> int:
    body = StartOperation("failures", "cancel", "run:r", rate=rate)
    plan = (await client.api.operations.start(body)).plan
    assert plan is not None
    body = StartOperation(
        "failures", "cancel", "run:r", rate=rate, dry_run=False, confirm=plan.confirm, key="k"
    )
    first = (await client.api.operations.start(body)).operation
    again = (await client.api.operations.start(body)).operation
    assert first is not None
    assert again is not None
    assert again.id == first.id
    return first.id


async def progressed(client: CenterClient, number: int, settled: int) -> OperationView:
    return await until(
        lambda: client.api.operations.show(number),
        lambda view: view.settled >= settled and view.holder,
        seconds=60,
    )


async def by_name(centers: dict[str, CenterProcess]) -> dict[str, CenterProcess]:
    """Processes by the name that their center has given itself."""
    return {
        (center.folder / "center.name").read_text().strip(): center for center in centers.values()
    }
