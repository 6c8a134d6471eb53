"""Bulk operations at a real center, by API and command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.center.http.authentication import Role
from skep.cli.main import run as command_line
from skep.model.fleet.agent import Registration
from skep.model.jobs.job import Job
from skep.model.states import RunState
from skep.store.sql.store import SqlStore
from skep.testing.grounds.centers import Caller, RunningCenter, running_center
from skep.testing.grounds.dead_requests import add_dead
from skep.testing.polling import until

PATH = "/api/v1/operations"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


async def with_dead(center: RunningCenter, run: str, count: int) -> None:
    await center.open_run(run)
    store = center.services.store
    assert isinstance(store, SqlStore)
    await add_dead(store, run, count, time.time() - 1)


def body(resource: str, act: str, filter_: str, **more: Any) -> dict[str, Any]:
    return {"resource": resource, "act": act, "filter": filter_, **more}


async def ended(caller: Caller, number: int) -> Any:
    async def look() -> Any:
        return (await caller.get(f"{PATH}/{number}")).json()

    over = ("done", "cancelled", "failed")
    return await until(look, lambda view: view["state"] in over)


async def act(center: RunningCenter, resource: str, name: str, filter_: str, **more: Any) -> Any:
    """Dry run, start, wait; the operation at its end."""
    asked = body(resource, name, filter_, **more)
    plan = (await center.admin.post(PATH, asked)).json()["plan"]
    asked |= {"dry_run": False, "confirm": plan["confirm"]}
    started = (await center.admin.post(PATH, asked)).json()["operation"]
    return await ended(center.admin, started["id"])


def counts(view: Any) -> dict[str, int]:
    return {f"{one['outcome']} {one['reason']}".strip(): one["count"] for one in view["results"]}


async def test_dead_requests_are_retried(center: RunningCenter) -> None:
    """R3: dry run with counts and examples, progress, results; the retried requests run."""
    await with_dead(center, "r", 1200)
    await with_dead(center, "other", 10)
    plan = (await center.admin.post(PATH, body("failures", "retry", "run:r"))).json()
    assert (plan["dry_run"], plan["plan"]["matched"], plan["plan"]["exact"]) == (True, 1200, True)
    assert (plan["plan"]["destroys"], len(plan["plan"]["examples"])) == (False, 5)
    assert (await center.ledger("r")).dead == 1200
    view = await act(center, "failures", "retry", "run:r")
    assert (view["state"], view["matched"], view["settled"]) == ("done", 1200, 1200)
    assert counts(view) == {"done": 1200}
    assert view["creator"] == "admin"
    assert (await center.ledger("r")).dead == 0
    assert (await center.ledger("other")).dead == 10
    agent = center.hand_agent()
    await agent.register()
    assert await agent.lease(1, wait=10.0), "the dispatcher was woken"


async def test_runs_jobs_and_agents_are_changed_one_by_one(center: RunningCenter) -> None:
    store, now = center.services.store, time.time() - 5
    for number in range(12):
        await center.open_run(f"r{number}")
        await store.jobs.save(Job(f"j{number}"), None, "anna", now)
        await store.agents.register(Registration(f"a{number}", f"a{number}"), time.time())
    await center.open_run("x")
    view = await act(center, "runs", "pause", "id:r*")
    assert counts(view) == {"done": 12}
    assert (await store.runs.get("r3")).state is RunState.PAUSED
    assert (await store.runs.get("x")).state is RunState.RUNNING
    view = await act(center, "runs", "continue", "state:paused")
    assert counts(view) == {"done": 12}
    view = await act(center, "runs", "cancel", "", all=True)
    assert counts(view) == {"done": 13}
    view = await act(center, "jobs", "delete", "name:j1*")
    assert counts(view) == {"done": 3}
    assert (await store.jobs.get("j1")).deleted
    view = await act(center, "jobs", "disable", "", all=True)
    assert counts(view) == {"done": 9}, "deleted jobs do not match"
    view = await act(center, "agents", "cordon", "id:a1*")
    assert counts(view) == {"done": 3}
    assert (await store.agents.get("a1")).aside == "cordoned"


async def test_an_operation_can_be_cancelled(center: RunningCenter) -> None:
    await with_dead(center, "r", 2000)
    asked = body("failures", "retry", "run:r", dry_run=False, rate=100)
    number = (await center.admin.post(PATH, asked)).json()["operation"]["id"]
    await until(lambda: center.services.store.operations.get(number), lambda one: one.settled)
    view = (await center.admin.post(f"{PATH}/{number}/cancel")).json()
    assert view["state"] == "cancelled"
    assert 0 < view["settled"] < 2000
    assert (await center.ledger("r")).dead == 2000 - view["settled"]
    again = (await center.admin.post(f"{PATH}/{number}/cancel")).json()
    assert again == view
    listed = (await center.admin.get(f"{PATH}?limit=1")).json()
    assert [one["id"] for one in listed["items"]] == [number]
    assert (await center.admin.get(f"{PATH}?open=true")).json()["items"] == []


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        (body("pages", "retry", "x"), 400, "'pages' is not a resource"),
        (body("runs", "paint", "x"), 400, "'paint' is not an act on runs"),
        (body("runs", "cancel", ""), 400, "an empty filter matches all runs"),
        (body("runs", "cancel", "state:sleepy"), 400, "sleepy"),
        (body("runs", "cancel", "id:" + "x" * 10_000), 400, "characters"),
        (body("runs", "cancel", "id:r*", dry_run=False), 400, "cannot be undone"),
        (body("runs", "cancel", "id:r*", dry_run=False, confirm="7"), 400, "not a confirmation"),
        (body("runs", "pause", "id:r*", arguments={"a": 1}), 400, "'a'"),
        (body("runs", "pause", "id:r*", rate=-1), 400, "rate"),
    ],
)
async def test_bad_input_changes_nothing(
    center: RunningCenter, asked: dict[str, Any], status: int, text: str
) -> None:
    problem = (await center.admin.post(PATH, asked)).problem()
    assert (problem.status, text in problem.detail) == (status, True), problem.detail
    assert (await center.admin.get(PATH)).json()["items"] == []


async def test_roles_decide(center: RunningCenter) -> None:
    viewer = await center.caller(Role.VIEWER)
    operator = await center.caller(Role.OPERATOR, "olga")
    asked = body("runs", "pause", "id:r*")
    assert (await viewer.post(PATH, asked)).problem().status == 403
    assert (await viewer.get(PATH)).status == 200
    assert (await operator.post(PATH, asked)).status == 200
    refused = (await operator.post(PATH, body("agents", "cordon", "", all=True))).problem()
    assert (refused.status, "needs role admin" in refused.detail) == (403, True)
    started = (await operator.post(PATH, {**asked, "dry_run": False})).json()["operation"]
    assert started["creator"] == "olga"
    assert (await viewer.post(f"{PATH}/{started['id']}/cancel")).problem().status == 403
    assert (await operator.get(f"{PATH}/999999")).problem().status == 404
    assert (await operator.get(f"{PATH}/x")).problem().status == 400


async def test_the_command_line_uses_the_same_rows(
    center: RunningCenter, capsys: pytest.CaptureFixture[str]
) -> None:
    await with_dead(center, "r", 700)
    at = ["--center", center.url, "--token-file", str(center.folder / "admin.token")]

    async def skep(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(command_line, [*words, *at])
        return code, *capsys.readouterr()

    code, out, _ = await skep("bulk")
    assert (code, "retry" in out, "failures" in out) == (0, True, True)
    code, out, _ = await skep("bulk", "cancel", "failures", "run:r", "--dry-run")
    assert (code, out.splitlines()[0]) == (
        0,
        "cancel would cover 700 failures; nothing was changed",
    )
    code, _, err = await skep("bulk", "cancel", "failures", "run:r")
    assert (code, "--yes" in err) == (2, True)
    code, _, err = await skep("bulk", "cancel", "failures")
    assert (code, "--all" in err) == (2, True)
    code, _, err = await skep("bulk", "paint", "failures", "run:r")
    assert (code, "'paint' is not an act" in err) == (2, True)
    assert (await center.ledger("r")).dead == 700
    code, out, _ = await skep("bulk", "retry", "failures", "run:r", "--yes", "--json")
    view = msgspec.json.decode(out)
    assert (code, view["state"], view["settled"]) == (0, "done", 700)
    code, out, _ = await skep("op")
    assert (code, "retry" in out, "700" in out) == (0, True, True)
    code, out, _ = await skep("op", "show", str(view["id"]))
    assert (code, "700 done" in out) == (0, True)
    code, out, _ = await skep("op", "watch", str(view["id"]))
    assert (code, "700 done" in out) == (0, True)
    code, out, _ = await skep("op", "cancel", str(view["id"]), "--json")
    assert (code, msgspec.json.decode(out)["state"]) == (0, "done")
    code, _, err = await skep("op", "show", "12345")
    assert (code, "no operation 12345" in err) == (3, True)
