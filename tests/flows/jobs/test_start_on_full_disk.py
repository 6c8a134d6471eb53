"""Jobs that are started while the disk is full: nothing hangs, and what was begun can be ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.center import disk_space
from skep.errors import DiskFull
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import until_found

#: With and without a window in which a URI is fetched once.
JOBS: dict[str, dict[str, Any]] = {
    "plain": {"requests": ["http://example.org/1"]},
    "once": {"requests": ["http://example.org/1"], "settings": {"dedup": 60}},
}


@pytest.fixture
async def center(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningCenter]:
    monkeypatch.setattr(disk_space, "TRIAL_EVERY", 1e9)
    async with running_center(tmp_path / "data", jobs_keep_every=0.05) as running:
        yield running


async def begun_on_a_full_disk(center: RunningCenter, name: str) -> str:
    """The run that a refused start has begun."""
    document = {"name": name, **JOBS[name]}
    assert (await center.admin.put(f"/api/v1/jobs/{name}", document)).status < 300
    center.services.disk.heard(DiskFull("no room, a test says"))
    refused = await asyncio.wait_for(center.admin.post(f"/api/v1/jobs/{name}/run"), 10)
    assert refused.problem().code == "disk_full"
    (run,) = (await center.services.store.job_runs.going([name]))[name]
    return run


async def row(center: RunningCenter, run: str) -> Any:
    return await center.services.store.job_runs.get(run)


@pytest.mark.parametrize("name", JOBS)
async def test_a_run_that_waits_for_room_can_be_cancelled(center: RunningCenter, name: str) -> None:
    run = await begun_on_a_full_disk(center, name)
    assert (await center.admin.post(f"/api/v1/runs/{run}/cancel")).status < 300

    async def closed() -> bool:
        return not (await row(center, run)).open

    await until_found(closed)
    assert "cancelled" in (await row(center, run)).outcome


@pytest.mark.parametrize("name", JOBS)
async def test_it_goes_on_by_itself_when_there_is_room(center: RunningCenter, name: str) -> None:
    run = await begun_on_a_full_disk(center, name)
    center.services.disk.trouble = ""

    async def accepted() -> bool:
        return (await center.services.store.ledgers.read(run)).accepted == 1

    await until_found(accepted)
