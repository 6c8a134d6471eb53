"""`skep why` about generators, and about requests that only one agent may take (C6, D1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.testing.doubles.manual_agents import ManualAgent, agents_of, joining, open_run
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import ENDLESS_GENERATOR
from skep.testing.polling import until

SITE = "http://127.0.0.1"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    flags = {"center_sweep_every": 0.1, "center_alive_after": 3.0, "jobs_keep_every": 0.05}
    async with running_center(tmp_path, center_allocate_wait=0.0, **flags) as running:
        yield running


@pytest.fixture
async def hands(center: RunningCenter) -> AsyncIterator[dict[str, ManualAgent]]:
    async with joining(center) as join:
        yield {name: await join(name) for name in ("a", "b")}


async def why(center: RunningCenter, kind: str, name: str | int) -> dict[str, Any]:
    """Its reasons, by code."""
    answer = (await center.admin.get(f"/api/v1/why/{kind}s/{name}")).json()
    return {reason["code"]: reason for reason in answer["reasons"]}


async def chain(
    center: RunningCenter, hands: dict[str, ManualAgent], **wish: Any
) -> tuple[str, int]:
    """(the agent of a chain, an open request that belongs to it)."""
    await open_run(center, "chain", {"strategy": "chained", "n": 1, **wish})
    (chosen,) = await agents_of(center, "chain")
    await center.put("chain", [f"{SITE}/first"])
    await center.dispatched()
    (block,) = await hands[chosen].lease()
    (first,) = await hands[chosen].finish(block)
    await center.put("chain", [{"uri": f"{SITE}/found", "parent": first}])
    # In its lane by now: what becomes of the agent does not race with the dispatcher.
    await center.dispatched()
    return chosen, first + 1


async def test_a_request_whose_agent_is_not_there(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C6: a reason of its own, which names the agent and what will happen."""
    chosen, request = await chain(center, hands, when_gone="wait", patience=600)
    await center.admin.post(f"/api/v1/agents/{chosen}/disable")

    async def held() -> bool:
        return "chain_held" in await why(center, "request", request)

    await until(held)
    reason = (await why(center, "request", request))["chain_held"]
    assert f"it belongs to agent {chosen}" in reason["text"]
    assert reason["text"].endswith("it is disabled")
    assert reason["frees"] == "it continues when the agent returns; after 600 s the run stops"
    of_run = (await why(center, "run", "chain"))["chain_held"]
    assert of_run["text"] == f"1 open request belongs to agent {chosen}; it is disabled"


async def test_a_request_whose_chain_begins_again(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C6: it waits for the first request, on another agent, and both are named."""
    chosen, request = await chain(center, hands, when_gone="restart")
    await center.admin.post(f"/api/v1/agents/{chosen}/drain")

    async def begun_again() -> bool:
        return "chain_restarts" in await why(center, "request", request)

    await until(begun_again)
    reason = (await why(center, "request", request))["chain_restarts"]
    (other,) = await agents_of(center, "chain")
    assert other != chosen
    assert (reason["facts"]["agent"], reason["facts"]["first"]) == (other, request + 1)


async def test_a_run_that_waits_for_its_generator(center: RunningCenter) -> None:
    """D1: running, with how many it yielded; and when one with a cron line is due."""
    timed = {"kind": "list", "name": "nightly", "uris": [f"{SITE}/n"], "cron": "0 3 * * *"}
    endless = {"kind": "python", "name": "all", "code": ENDLESS_GENERATOR}
    document = {"name": "many", "generators": [endless, timed]}
    put = await center.admin.put("/api/v1/jobs/many", document)
    assert put.status == 200, put.content
    due = (await why(center, "job", "many"))["generator_due"]
    assert due["text"].startswith("generator nightly runs at ")
    run = (await center.admin.post("/api/v1/jobs/many/run")).json()["run"]

    async def yielding() -> bool:
        found = (await why(center, "run", run)).get("generator_running")
        return found is not None and found["facts"]["yielded"] > 0

    await until(yielding, seconds=60.0)
    reason = (await why(center, "run", run))["generator_running"]
    assert reason["text"].startswith("generator all is running and has yielded ")
    await center.admin.post("/api/v1/jobs/many/stop")


async def test_a_run_whose_generator_failed(center: RunningCenter) -> None:
    """D1: the run rests, and says which generator failed, and why."""
    broken = {"kind": "python", "name": "bad", "code": "def generate():\n    yield 1 / 0\n"}
    path = "/api/v1/jobs/broken?test=false"
    put = await center.admin.put(path, {"name": "broken", "generators": [broken]})
    assert put.status == 200, put.content
    run = (await center.admin.post("/api/v1/jobs/broken/run")).json()["run"]

    async def failed() -> bool:
        return (await center.services.store.runs.get(run)).state == "failed"

    await until(failed, seconds=60.0)
    found = await why(center, "run", run)
    assert next(iter(found)) == "run_failed"
    assert "ZeroDivisionError" in found["generator_failed"]["text"]
    assert found["generator_failed"]["do"][1] == "skep job resume broken"
