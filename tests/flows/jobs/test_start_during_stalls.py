"""Starts of placed runs while the store stalls: the choice of agents holds, nothing is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.errors import Unavailable
from skep.model.jobs.job import JobRun
from skep.model.run import Run
from skep.testing.grounds.centers import HandAgent, RunningCenter, running_center
from skep.testing.grounds.jobs import until_found

ALIVE_AFTER = 0.5
PLACED = {
    "requests": ["http://example.org/1"],
    "placement": {"strategy": "fixed", "n": 1},
}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    quick: dict[str, Any] = {
        "jobs_keep_every": 0.05,
        "center_alive_after": ALIVE_AFTER,
        "center_allocate_wait": 20.0,
    }
    async with running_center(tmp_path / "data", **quick) as running:
        yield running


async def agent_with_job(center: RunningCenter) -> HandAgent:
    agent = center.hand_agent("a1")
    await agent.register()
    assert (
        await center.admin.put("/api/v1/jobs/placed", {"name": "placed", **PLACED})
    ).status < 300
    return agent


async def until_late(center: RunningCenter) -> None:
    """The center sees no agent that could take a new run."""

    async def look() -> bool:
        await center.services.placement.roster.refresh()
        (view,) = center.services.placement.roster.views
        return center.services.clock.now() - view.seen_at > ALIVE_AFTER

    await until_found(look)


async def state_of(center: RunningCenter, run: str) -> str:
    return str((await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]["state"])


async def test_the_supervisor_leaves_a_run_alone_that_is_being_started(
    center: RunningCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor of the same center holds the same lease. It must not choose agents a second
    time and give the run up, because a store that stalls makes live agents look dead."""
    await agent_with_job(center)
    store, supervisor = center.services.store, center.services.jobs.supervisor
    reached, go_on, create = asyncio.Event(), asyncio.Event(), store.runs.create
    step = supervisor.step

    async def stalled(run: Run) -> bool:
        reached.set()
        await go_on.wait()
        return await create(run)

    async def not_now() -> None:
        """The loop of the center looks again when the agent is late."""

    monkeypatch.setattr(store.runs, "create", stalled)
    monkeypatch.setattr(supervisor, "step", not_now)
    started = asyncio.create_task(center.admin.post("/api/v1/jobs/placed/run"))
    await asyncio.wait_for(reached.wait(), 20)
    await until_late(center)
    await step()
    await asyncio.sleep(0.2)  # a second choice of agents would fail meanwhile
    go_on.set()
    run = (await started).json()["run"]
    row = await store.job_runs.get(run)
    assert row is not None
    assert (row.open, row.fed, row.outcome) == (True, True, "")
    assert await state_of(center, run) == "running"
    allocation = await store.allocations.get(run)
    assert allocation is not None
    assert allocation.agents == ["a1"]
    assert (await center.ledger(run)).accepted == 1


async def test_a_run_that_the_supervisor_prepares_waits_for_agents(
    center: RunningCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start fails halfway; the supervisor goes on with it while its agents look dead."""
    agent = await agent_with_job(center)
    store, create = center.services.store, center.services.store.runs.create

    async def away(_run: Run) -> bool:
        monkeypatch.setattr(store.runs, "create", create)
        await until_late(center)
        raise Unavailable("the store stalls")

    monkeypatch.setattr(store.runs, "create", away)
    assert (await center.admin.post("/api/v1/jobs/placed/run")).status == 503
    (run,) = (await store.job_runs.going(["placed"]))["placed"]
    await asyncio.sleep(10 * 0.05)  # the supervisor looks several times meanwhile
    row = await store.job_runs.get(run)
    assert row is not None
    assert (row.open, row.outcome) == (True, "")
    await agent.heartbeat()

    async def is_fed() -> bool:
        found = await store.job_runs.get(run)
        return found is not None and found.fed

    await until_found(is_fed)
    assert await state_of(center, run) == "running"
    assert (await center.ledger(run)).accepted == 1


async def test_a_run_that_waits_for_agents_does_not_keep_the_others_from_a_stop(
    center: RunningCenter,
) -> None:
    """It is begun and not open yet: other runs of its job are stopped all the same."""
    agent = await agent_with_job(center)
    going = (await center.admin.post("/api/v1/jobs/placed/run")).json()["run"]
    del agent  # it sends no more heartbeats
    await until_late(center)
    services, now = center.services, center.services.clock.now()
    held: dict[str, Any] = {
        "holder": services.jobs.supervisor._center,
        "held_until": now + 30,
        "lease": 1,
    }
    await services.store.job_runs.begin(JobRun("placed-waits", "placed", "k", 1, now, **held))
    assert (await center.admin.post("/api/v1/jobs/placed/stop")).status < 300
    assert await state_of(center, going) == "cancelled"
    # A schedule that replaces runs stops all of them; one that is not open must not end the fire.
    await services.jobs.starts.stop_run("placed-waits", "replaced")
