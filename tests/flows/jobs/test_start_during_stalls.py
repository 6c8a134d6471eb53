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

ALIVE_AFTER = 1.0
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
    put = await center.admin.put("/api/v1/jobs/placed", {"name": "placed", **PLACED})
    assert put.status < 300
    agent = center.hand_agent("a1")
    await agent.register()  # last: it is alive for a short time only
    return agent


async def until_late(center: RunningCenter) -> None:
    """The center sees no agent that could take a new run."""

    async def look() -> bool:
        await center.services.placement.roster.refresh()
        (view,) = center.services.placement.roster.views
        return center.services.clock.now() - view.seen_at > ALIVE_AFTER

    await until_found(look)


async def until_fed(center: RunningCenter, run: str) -> None:
    async def look() -> bool:
        found = await center.services.store.job_runs.get(run)
        return found is not None and found.fed

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
    await until_fed(center, run)
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


async def begun_run_that_waits(center: RunningCenter) -> str:
    """A run whose start fails halfway; the supervisor goes on with it and finds no agents."""
    await center.admin.put("/api/v1/jobs/placed", {"name": "placed", **PLACED})
    services, now = center.services, center.services.clock.now()
    new = JobRun("placed-waits", "placed", "k", 1, now, held_until=0.0)
    await services.store.job_runs.begin(new)
    services.signals.runs.claims.notify()

    async def is_open() -> bool:
        return (await center.admin.get("/api/v1/runs/placed-waits")).status == 200

    await until_found(is_open)
    return new.run


async def test_a_begun_run_that_waits_for_agents_can_be_seen(center: RunningCenter) -> None:
    """GET, `why` and the list show it while it waits; then it runs with the agent that came."""
    run = await begun_run_that_waits(center)
    assert await state_of(center, run) == "running"
    why = (await center.admin.get(f"/api/v1/why/runs/{run}")).json()
    assert why["reasons"][0]["code"] == "too_few_agents"
    assert "1 agent is needed and 0 of 0 can be had" in why["reasons"][0]["text"]
    assert (await center.admin.get("/api/v1/why/jobs/placed")).status == 200
    agent = center.hand_agent("a1")
    await agent.register()
    await until_fed(center, run)
    allocation = await center.services.store.allocations.get(run)
    assert allocation is not None
    assert allocation.agents == ["a1"]
    assert (await center.ledger(run)).accepted == 1


@pytest.mark.parametrize("verb", ["cancel", "finish"])
async def test_a_begun_run_that_waits_for_agents_can_be_ended(
    center: RunningCenter, verb: str
) -> None:
    """It ends long before the wait would: no agent is chosen, no request is put in."""
    run = await begun_run_that_waits(center)
    assert (await center.admin.post(f"/api/v1/runs/{run}/{verb}")).status == 200
    store = center.services.store

    async def is_closed() -> bool:
        found = await store.job_runs.get(run)
        return found is not None and not found.open

    await until_found(is_closed)
    row = await store.job_runs.get(run)
    assert row is not None
    assert row.outcome.startswith("cancelled:" if verb == "cancel" else "finished:")
    assert await store.allocations.get(run) is None
    assert (await center.ledger(run)).accepted == 0


async def test_a_paused_run_that_waits_for_agents_stays_paused(center: RunningCenter) -> None:
    run = await begun_run_that_waits(center)
    assert (await center.admin.post(f"/api/v1/runs/{run}/pause")).status == 200
    await center.hand_agent("a1").register()
    await until_fed(center, run)
    assert await state_of(center, run) == "paused"
    assert (await center.admin.post(f"/api/v1/runs/{run}/continue")).status == 200
    assert (await center.ledger(run)).accepted == 1


async def test_requests_for_a_run_that_waits_for_agents_do_not_fail_it(
    center: RunningCenter,
) -> None:
    """The dispatcher finds a run with requests and without agents. Its supervisor waits for them;
    no other step decides that there are too few."""
    run = await begun_run_that_waits(center)
    await center.put(run, [{"uri": "http://example.org/2"}])
    await center.dispatched()
    assert center.services.placement.placer.unallocated == {run}
    await center.services.placement.gone_agents.step()
    assert await state_of(center, run) == "running"
    await center.hand_agent("a1").register()
    await until_fed(center, run)
    assert (await center.ledger(run)).accepted == 2


@pytest.mark.parametrize("way", ["job", "run"])
async def test_a_center_that_stops_ends_the_wait_for_agents_with_a_retryable_error(
    center: RunningCenter, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is begun: the same call can be repeated, here or at another center."""
    await center.admin.put("/api/v1/jobs/placed", {"name": "placed", **PLACED})
    waits = asyncio.Event()
    services, refresh = center.services, center.services.placement.roster.refresh

    async def seen() -> Any:
        waits.set()
        return await refresh()

    monkeypatch.setattr(services.placement.roster, "refresh", seen)
    placed = {"settings": {"placement": PLACED["placement"]}}
    call = (
        center.admin.send("POST", "/api/v1/jobs/placed/run", headers={"Idempotency-Key": "k"})
        if way == "job"
        else center.admin.put("/api/v1/runs/by-hand", placed)
    )
    started = asyncio.create_task(call)
    await asyncio.wait_for(waits.wait(), 20)
    center.local.center.release()
    answer = await started
    problem = answer.problem()
    assert (problem.status, problem.code, problem.retryable) == (503, "center_stopping", True)
    assert "repeat the call" in problem.detail
    assert await services.store.job_runs.going(["placed"]) == {}
    assert await services.store.runs.recent(10) == []
    services.closing.clear()  # as if it were another center
    await center.hand_agent("a1").register()
    again = await center.admin.send(
        "POST", "/api/v1/jobs/placed/run", headers={"Idempotency-Key": "k"}
    )
    assert again.status < 300
    assert len((await services.store.job_runs.going(["placed"]))["placed"]) == 1


async def test_a_call_that_the_shutdown_cuts_off_gets_a_retryable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start with a key hangs in the store after it was begun. The center that comes next
    continues that run, and the repeated call returns it: one run, not two."""
    monkeypatch.setattr("skep.center.http.server.GRACE", 0.2)
    key = {"Idempotency-Key": "k"}
    call = ("POST", "/api/v1/jobs/plain/run", None, key)
    async with running_center(tmp_path / "data", jobs_keep_every=0.05) as first:
        plain = {"name": "plain", "requests": ["http://example.org/1"]}
        await first.admin.put("/api/v1/jobs/plain", plain)
        reached = asyncio.Event()

        async def stalled(_run: Run) -> bool:
            reached.set()
            await asyncio.Event().wait()
            return True

        monkeypatch.setattr(first.services.store.runs, "create", stalled)
        started = asyncio.create_task(first.admin.send(*call))
        await asyncio.wait_for(reached.wait(), 20)
        await first.local.stop()
        answer = await started
        first.planted = True  # it is closed: nothing can be checked
    problem = answer.problem()
    assert (problem.status, problem.code, problem.retryable) == (503, "center_stopping", True)
    async with running_center(tmp_path / "data", jobs_keep_every=0.05) as second:
        run = (await second.admin.send(*call)).json()["run"]
        store = second.services.store
        await until_fed(second, run)
        assert [one.run for one in await store.job_runs.of("plain", 10)] == [run]
        assert (await second.ledger()).accepted == 1
