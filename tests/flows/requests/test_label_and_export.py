"""Bulk operations that label or export what a filter matches, by API and command line."""

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
from skep.model.jobs.job import Job
from skep.model.labels import LABELS_LIMIT
from skep.store.sql.store import SqlStore
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.dead_requests import add_dead
from skep.testing.polling import until

PATH = "/api/v1/operations"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


async def act(center: RunningCenter, resource: str, name: str, filter_: str, **more: Any) -> Any:
    """Start an operation; the view of it at its end."""
    asked = {"resource": resource, "act": name, "filter": filter_, "dry_run": False, **more}
    answer = (await center.admin.post(PATH, asked)).json()
    return await ended(center, answer["operation"]["id"])


async def ended(center: RunningCenter, number: int) -> Any:
    async def look() -> Any:
        return (await center.admin.get(f"{PATH}/{number}")).json()

    return await until(look, lambda view: view["state"] in ("done", "cancelled", "failed"))


def counts(view: Any) -> dict[str, int]:
    return {f"{one['outcome']} {one['reason']}".strip(): one["count"] for one in view["results"]}


async def with_dead(center: RunningCenter, run: str, count: int) -> None:
    await center.open_run(run)
    store = center.services.store
    assert isinstance(store, SqlStore)
    await add_dead(store, run, count, time.time() - 1)


async def test_runs_are_labelled(center: RunningCenter) -> None:
    """R3: labels are added and removed, filters find them, a second operation changes nothing."""
    for name in ("a1", "a2", "b1"):
        await center.open_run(name)
    store = center.services.store
    asked = {"add": {"team": "x", "eu": ""}}
    view = await act(center, "runs", "label", "id:a*", arguments=asked)
    assert counts(view) == {"done": 2}
    assert (await store.runs.get("a1")).labels == {"team": "x", "eu": ""}
    assert (await store.runs.get("b1")).labels == {}
    listed = (await center.admin.get("/api/v1/runs?filter=label:team%3Dx")).json()
    assert {one["id"] for one in listed["items"]} == {"a1", "a2"}
    view = await act(center, "runs", "label", "id:a*", arguments=asked)
    assert counts(view) == {"skipped has these labels already": 2}
    view = await act(center, "runs", "label", "label:eu", arguments={"remove": ["eu"]})
    assert counts(view) == {"done": 2}
    assert (await store.runs.get("a1")).labels == {"team": "x"}
    assert (await center.admin.get("/api/v1/runs?filter=label:eu")).json()["items"] == []


async def test_jobs_are_labelled_with_a_new_revision(center: RunningCenter) -> None:
    store = center.services.store
    full = {f"l{number}": "" for number in range(LABELS_LIMIT)}
    for job in (Job("j1"), Job("j2", labels={"old": "1"}), Job("j3", labels=full)):
        await store.jobs.save(job, None, "anna", time.time() - 5)
    asked = {"add": {"team": "x"}, "remove": ["old"]}
    view = await act(center, "jobs", "label", "name:j*", arguments=asked)
    assert (counts(view)["done"], view["state"]) == (2, "done")
    (failed,) = (one for one in view["results"] if one["outcome"] == "failed")
    assert (failed["count"], "j3" in failed["examples"][0]) == (1, True), "too many labels"
    assert (await store.jobs.get("j2")).job.labels == {"team": "x"}
    assert (await store.jobs.get("j2")).revision == 2
    assert (await store.jobs.get("j3")).job.labels == full


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give labels"),
        ({"add": {"a b": ""}}, "add"),
        ({"add": {"x": "y\0"}}, "add"),
        ({"add": {"x": ""}, "remove": ["x"]}, "both add and remove x"),
        ({"remove": ["n"] * (LABELS_LIMIT + 1)}, "remove"),
        ({"paint": 1}, "paint"),
    ],
)
async def test_bad_labels_start_nothing(
    center: RunningCenter, arguments: dict[str, Any], text: str
) -> None:
    await center.open_run("a1")
    for dry_run in (True, False):
        asked = {"resource": "runs", "act": "label", "filter": "id:a1", "arguments": arguments}
        problem = (await center.admin.post(PATH, {**asked, "dry_run": dry_run})).problem()
        assert (problem.status, text in problem.detail) == (400, True), problem.detail
    assert (await center.admin.get(PATH)).json()["items"] == []


async def test_requests_are_exported_once_each(center: RunningCenter) -> None:
    """R3: everything that matches is a line of the file; others are not."""
    await with_dead(center, "r", 1203)
    await with_dead(center, "other", 10)
    plan = {"resource": "requests", "act": "export", "filter": "run:r"}
    shown = (await center.admin.post(PATH, plan)).json()["plan"]
    assert (shown["matched"], shown["destroys"]) == (1203, False)
    view = await act(center, "requests", "export", "run:r")
    assert counts(view) == {"done": 1203}
    answer = await center.admin.get(f"{PATH}/{view['id']}/file")
    assert answer.status == 200
    lines = [msgspec.json.decode(line) for line in answer.content.splitlines()]
    assert view["file"] == {"lines": 1203, "bytes": len(answer.content)}
    assert len({line["id"] for line in lines}) == len(lines) == 1203
    assert {(line["run"], line["state"]) for line in lines} == {("r", "dead")}
    named = f'attachment; filename="skep-requests-{view["id"]}.jsonl"'
    assert answer.headers["content-disposition"] == named
    assert (await center.ledger("r")).dead == 1203, "nothing was changed"


async def test_an_export_masks_secrets_for_every_role(center: RunningCenter) -> None:
    secret = "hunter2-very-secret"
    await center.open_run("r")
    uris = [f"https://anna:{secret}@shop.example/", f"https://shop.example/?password={secret}"]
    await center.admin.post("/requestqueue/r", uris)
    viewer = await center.caller(Role.VIEWER)
    for resource, lines in {"requests": 2, "runs": 1, "jobs": 0}.items():
        view = await act(center, resource, "export", "", all=True)
        for caller in (center.admin, viewer):
            answer = await caller.get(f"{PATH}/{view['id']}/file")
            assert (answer.status, len(answer.content.splitlines())) == (200, lines)
            assert secret.encode() not in answer.content


async def test_a_file_has_a_role_a_state_and_an_end(center: RunningCenter) -> None:
    await with_dead(center, "r", 30)
    view = await act(center, "failures", "export", "run:r")
    where = f"{PATH}/{view['id']}/file"
    agent = await center.caller(Role.AGENT, "a")
    assert (await agent.get(where)).problem().status == 403
    other = await act(center, "failures", "retry", "run:r")
    problem = (await center.admin.get(f"{PATH}/{other['id']}/file")).problem()
    assert (problem.status, "makes no file" in problem.detail) == (404, True)
    store = center.services.store
    assert await store.operations.forget_files(time.time() + 1, 10) == 1
    assert (await center.admin.get(where)).problem().status == 404
    assert (await center.admin.get(f"{PATH}/{view['id']}")).json()["file"] is None


async def test_a_cancelled_export_leaves_no_file(center: RunningCenter) -> None:
    await with_dead(center, "r", 400)
    asked = {"resource": "failures", "act": "export", "filter": "run:r", "dry_run": False}
    started = (await center.admin.post(PATH, {**asked, "rate": 20})).json()["operation"]
    operations = center.services.store.operations
    await until(lambda: operations.file(started["id"]), lambda file: file.lines)
    where = f"{PATH}/{started['id']}"
    assert (await center.admin.get(f"{where}/file")).problem().status == 409
    assert (await center.admin.post(f"{where}/cancel")).json()["state"] == "cancelled"
    assert (await operations.file(started["id"])).pieces == 0
    assert (await center.admin.get(f"{where}/file")).problem().status == 404


async def test_commands_label_and_export(
    center: RunningCenter, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    await with_dead(center, "r", 25)
    at = ["--center", center.url, "--token-file", str(center.folder / "admin.token")]

    async def skep(*words: str) -> tuple[int, bytes]:
        code = await asyncio.to_thread(command_line, [*words, *at])
        return code, capfdbinary.readouterr().out

    code, _ = await skep(
        "bulk", "label", "runs", "id:r", "--label", "team=a", "--label", "eu", "--yes"
    )
    assert (code, (await center.services.store.runs.get("r")).labels) == (
        0,
        {"team": "a", "eu": ""},
    )
    code, _ = await skep("bulk", "label", "runs", "id:r", "--unlabel", "eu", "--yes")
    assert (code, (await center.services.store.runs.get("r")).labels) == (0, {"team": "a"})
    file = tmp_path / "dead.jsonl"
    code, out = await skep("bulk", "export", "failures", "run:r", "--yes", "-o", str(file))
    assert (code, b"25 lines" in out) == (0, True)
    assert len(file.read_bytes().splitlines()) == 25
    code, out = await skep("bulk", "export", "failures", "run:r", "--yes", "--json")
    number = msgspec.json.decode(out)["id"]
    code, out = await skep("op", "download", str(number))
    assert (code, out) == (0, file.read_bytes())
    code, _ = await skep("op", "download", "12345", "-o", str(tmp_path / "none"))
    assert (code, (tmp_path / "none").exists()) == (3, False)


async def test_older_commands_start_operations(
    center: RunningCenter, capsys: pytest.CaptureFixture[str]
) -> None:
    """R3: `skep failures` and `skep request cancel` leave rows, and answer as before."""
    await with_dead(center, "r", 40)
    at = ["--center", center.url, "--token-file", str(center.folder / "admin.token")]

    async def skep(*words: str) -> tuple[int, Any]:
        code = await asyncio.to_thread(command_line, [*words, *at, "--json"])
        return code, msgspec.json.decode(capsys.readouterr().out)

    code, plan = await skep("failures", "cancel", "--run", "r", "--dry-run")
    assert (code, plan["dry_run"], plan["matched"], plan["changed"]) == (0, True, 40, 0)
    since = ("--since", "1h", "--until", "0s", "--failure", "network", "--host", "host1.test")
    code, done = await skep("failures", "retry", "--run", "r", *since, "--batch", "3")
    assert (code, done["matched"], done["changed"], done["left"]) == (0, 1, 1, 0)
    assert done["operation"]["creator"] == "admin"
    code, done = await skep("failures", "cancel", "--run", "r", "--text", 'no "such": text*')
    assert (code, done["matched"], done["dry_run"]) == (0, 0, True)
    code, done = await skep("request", "cancel", "--run", "r")
    assert (code, done["changed"]) == (0, 1)
    code, done = await skep("failures", "cancel", "--all", "--yes")
    assert (code, done["changed"]) == (0, 39)
    assert (await center.ledger("r")).cancelled == 40
    listed = (await center.admin.get(PATH)).json()["items"]
    assert [one["act"] for one in listed] == ["cancel", "cancel", "retry"]
