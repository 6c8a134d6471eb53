"""Schedules over real centers that are killed, on PostgreSQL (fault 32)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from skep.model.jobs.fire import FireState
from skep.store.sql.store import SqlStore
from skep.testing.fleet import Fleet, tell

JOBS = [f"job{number}" for number in range(10)]
SCHEDULE = {"every": 1, "overlap": "parallel", "catch_up": "all", "grace": 120}
KILLS = 3
SECONDS = 90.0
OPENED = (FireState.FIRED, FireState.LATE)


async def test_centers_are_killed_while_jobs_come_due_each_second(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """Fault 32: every due time is in the ledger, opened one run, and none opened two."""
    store = SqlStore(shared["SKEP_STORE_URL"])
    await store.open()
    try:
        async with Fleet(tmp_path, shared) as fleet:
            centers = [fleet.center, await fleet.another_center("second")]
            for job in JOBS:
                document = {"requests": ["http://127.0.0.1:9/"], "schedule": SCHEDULE}
                await fleet.client.api.call("PUT", f"/api/v1/jobs/{job}", document, dict)
            first = min(planned.decided for planned in await store.fires.planned())
            for number in range(KILLS):
                enough = first + 3 * (number + 1)
                await fleet.wait_for(lambda at=enough: _decided(store, at), SECONDS)  # type: ignore[misc]
                victim = centers[number % 2]
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(victim.start)
            end = first + 3 * KILLS + 3
            await fleet.wait_for(lambda: _decided(store, end), SECONDS)
            await fleet.wait_for(lambda: _all_ended(store, end), SECONDS)
        await _check(store, end)
    finally:
        await store.close()


async def _decided(store: SqlStore, instant: int) -> bool:
    return all(planned.decided >= instant for planned in await store.fires.planned())


async def _all_ended(store: SqlStore, end: int) -> bool:
    return all(fire.due_at > end for fire in await store.fires.pending(JOBS))


async def _check(store: SqlStore, end: int) -> None:
    fires: list[Any] = []
    for job in JOBS:
        found = [one for one in await store.fires.of_job(job, 1000) if one.due_at <= end]
        due = sorted(one.due_at for one in found)
        assert due == list(range(due[0], end + 1)), "each second has one line"
        assert all(one.state in OPENED for one in found), found
        runs = {run.fire_key: run.run for run in await store.job_runs.of(job, 1000)}
        assert all(runs[one.key] == one.run for one in found)
        assert len(set(runs.values())) == len(runs)
        fires += found
    taken = sum(one.reason.startswith("taken over") for one in fires)
    tell("32", kills=KILLS, due=len(fires), taken_over=taken, missed=0, doubled=0)
