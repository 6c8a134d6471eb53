"""Schedules at a real center: jobs that run by themselves, chains, the ledger (P3, C8)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from skep.cli.commands.jobs.job_calls import document_of
from skep.cli.commands.jobs.schedule import command, fires_table, schedules_table
from skep.model.jobs.fire import Fire
from skep.testing.grounds.centers import Caller, RunningCenter, running_center
from skep.testing.grounds.jobs import until_found
from skep.wire.api.jobs import JobView
from skep.wire.api.schedules import ScheduleLine

QUICK: dict[str, Any] = {"jobs_keep_every": 0.05, "jobs_schedule_every": 0.05}
SPARSE = {"cron": "17 3 * * *", "zone": "Europe/Berlin"}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data", **QUICK) as running:
        yield running


async def put(center: RunningCenter, name: str, schedule: Any = None, **more: Any) -> Any:
    """A job with one request; no agent works here, so its runs go on until they are ended."""
    document = {"name": name, "requests": ["http://127.0.0.1:9/"], "schedule": schedule, **more}
    return await center.admin.put(f"/api/v1/jobs/{name}", document)


async def ledger(caller: Caller, job: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await caller.get(f"/api/v1/jobs/{job}/fires")).json()["items"]
    return items


async def schedules(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await caller.get(f"/api/v1/schedules{query}")).json()["items"]
    return items


async def test_a_job_runs_by_itself(center: RunningCenter) -> None:
    """P3: every due time has one outcome, and what fired has a run of the job."""
    (await put(center, "tick", {"every": 1, "overlap": "parallel"})).json()

    async def look() -> Any:
        found = await ledger(center.admin, "tick")
        return found if len(found) >= 3 and all(one["run"] for one in found) else None

    found = await until_found(look)
    due = [one["due_at"] for one in found]
    assert due == list(range(due[0], due[-1] - 1, -1)), "newest first, and none is missing"
    assert {one["state"] for one in found} == {"fired"}
    for one in found:
        kept = await center.services.store.job_runs.get(one["run"])
        assert kept is not None
        assert (kept.job, kept.fire_key) == ("tick", one["key"])
    assert "fired" in fires_table(msgspec.convert(found, list[Fire]))


async def test_overlap_looks_at_real_runs(center: RunningCenter) -> None:
    """Nothing is downloaded here, so the first run goes on: the second due time is skipped."""
    await put(center, "slow", {"every": 1})
    found = await until_found(lambda: _enough(center, "slow", 2))
    first, second = found[-1], found[-2]
    assert (first["state"], second["state"]) == ("fired", "skipped")
    assert second["reason"] == f"run {first['run']} was still active"


async def _enough(center: RunningCenter, job: str, count: int) -> list[dict[str, Any]]:
    found = [one for one in await ledger(center.admin, job) if one["ended_at"]]
    return found if len(found) >= count else []


async def test_b_runs_when_a_succeeded(center: RunningCenter) -> None:
    """Job chains: the run of A finishes successfully, B is fired once for it."""
    await put(center, "a")
    await put(center, "b", {"after": ["a"]})
    run = (await center.admin.send("POST", "/api/v1/jobs/a/run")).json()["run"]
    await center.admin.send("POST", f"/api/v1/runs/{run}/finish")
    (found,) = await until_found(lambda: _enough(center, "b", 1))
    assert (found["key"], found["state"]) == (f"after:{run}", "fired")
    assert found["reason"] == f"run {run} of a succeeded"


async def test_a_schedule_that_is_not_accepted_refuses_the_whole_job(
    center: RunningCenter,
) -> None:
    """P3: create and change are refused as a whole, and everything wrong is said."""
    bad = {"cron": "0 25 * * *", "zone": "Mars/Base", "exclude": ["someday"]}
    answer = await put(center, "bad", bad)
    assert answer.status == 400
    detail = answer.problem().detail
    for path in ("schedule.cron", "schedule.zone", "schedule.exclude[0]"):
        assert path in detail
    assert (await center.admin.get("/api/v1/jobs/bad")).status == 404
    await put(center, "good", SPARSE)
    assert (await put(center, "good", bad, note="new")).status == 400
    kept = (await center.admin.get("/api/v1/jobs/good")).json()
    assert "new" not in str(kept)
    assert [one["schedule"] for one in await schedules(center.admin)] == [SPARSE]


async def test_rings_and_unknown_jobs_are_refused(center: RunningCenter) -> None:
    await put(center, "a")
    await put(center, "b", {"after": ["a"]})
    await put(center, "c", {"after": ["b"]})
    ring = (await put(center, "a", {"after": ["c"]})).problem()
    assert "a cycle: a after c after b after a" in ring.detail
    ghost = (await put(center, "d", {"after": ["ghost"]})).problem()
    assert "there is no job ghost" in ghost.detail
    refused = await center.admin.send("DELETE", "/api/v1/jobs/b")
    assert refused.status == 409
    assert "cannot delete job b: c depends on it" in refused.problem().detail
    assert (await center.admin.send("DELETE", "/api/v1/jobs/c")).status < 300
    assert (await center.admin.send("DELETE", "/api/v1/jobs/b")).status < 300
    assert await schedules(center.admin) == []


async def test_next_fires_are_shown(center: RunningCenter) -> None:
    await put(center, "nightly", SPARSE)
    await put(center, "off", SPARSE, enabled=False)
    (line,) = await schedules(center.admin)
    assert line["job"] == "nightly"
    assert len(line["next"]) == 5
    assert all(re.search(r"T03:17:00\+0[12]:00$", moment) for moment in line["next"])
    assert (await schedules(center.admin, "?job=nightly&count=2"))[0]["next"] == line["next"][:2]
    assert await schedules(center.admin, "?job=ghost") == []
    view = (await center.admin.get("/api/v1/jobs/nightly")).json()
    assert view["next"] == line["next"]
    assert f"# next: {line['next'][0]}, {line['next'][1]}" in document_of(
        msgspec.convert(view, JobView)
    )
    assert (await center.admin.get("/api/v1/jobs/off")).json()["next"] == []
    table = schedules_table([msgspec.convert(line, ScheduleLine)])
    assert "17 3 * * *" in table
    assert line["next"][0] in table


async def test_a_job_that_was_stored_and_not_planned_is_healed(center: RunningCenter) -> None:
    """A center died between the two: the next housekeeping fixes it."""
    await put(center, "job", SPARSE)
    fires = center.services.store.fires
    await fires.unplan("job", 0.0)
    await center.services.jobs.scheduler.heal()
    (planned,) = await fires.planned()
    assert planned.job == "job"
    await center.services.jobs.scheduler.heal()
    assert await fires.planned() == [planned]


def test_preview_makes_no_call() -> None:
    runner = CliRunner()
    line = ["preview", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T12:00", "-n2"]
    shown = runner.invoke(command, line)
    assert shown.output.split() == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    bad = runner.invoke(command, ["preview", "99 * * * *", "--tz", "Nowhere"])
    assert bad.exit_code == 1
    assert "its minute is " in bad.output
    assert "Nowhere" in bad.output
