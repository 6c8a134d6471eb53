"""Bad input over real HTTP: each gets problem+json with a stable code and a sentence that
says what to do, nothing is stored and the ledger does not move."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from skep.center import app
from skep.center.app import api_table
from skep.center.http.endpoint import Endpoint
from skep.center.http.openapi import describe
from skep.testing.grounds.centers import RunningCenter
from skep.testing.grounds.refused_calls import URL, center_with_one_request, refused
from skep.wire import codec

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    """One for all, because what is refused changes nothing; every test checks that."""
    async with center_with_one_request(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """For tests that change something."""
    async with center_with_one_request(tmp_path) as running:
        yield running


BAD_NAMES = ["..", "a%2Fb", "a%00b", "a%0Ab", "%2e%2e%2fetc", "a%20b", "%C3%A9", "x" * 65, "%FF"]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_name_that_no_run_can_have(center: RunningCenter, name: str) -> None:
    """Fault 51: names become parts of paths and of tables. Every route says the same."""
    calls = (
        ("PUT", f"/api/v1/runs/{name}", b"{}"),
        ("GET", f"/api/v1/runs/{name}", None),
        ("POST", f"/api/v1/runs/{name}/pause", None),
        ("POST", f"/api/v1/runs/{name}/revive", None),
        ("POST", f"/api/v1/runs/{name}/requests", b"[]"),
        ("POST", f"/requestqueue/{name}", b"[]"),
        ("GET", f"/requestqueue/{name}", None),
        ("POST", f"/requestqueue/{name}/collected", b'{"blocks":[]}'),
        ("POST", f"/requestqueue/{name}/driver", b"{}"),
        ("POST", f"/requestqueue/{name}/read", b"{}"),
        ("POST", f"/requestqueue/{name}/turn", b'{"driver":1}'),
        ("GET", f"/api/v1/runs/{name}/items", None),
        ("GET", f"/api/v1/ledger?run={name}", None),
    )
    for method, path, body in calls:
        answer = await center.admin.send(method, path, body)
        code = answer.problem().code
        # A slash or dots may also make it another path: that is not found, and no run.
        assert code in {"invalid_input", "not_found", "method_not_allowed"}, (path, code)
    await refused(center, answer, answer.status, code)
    if name not in {"..", "a%2Fb", "%2e%2e%2fetc"}:
        answer = await center.admin.get(f"/api/v1/runs/{name}")
        await refused(center, answer, 400, "invalid_input")


@pytest.mark.parametrize(
    "settings",
    [
        {"priority": 6},
        {"retries": -1},
        {"block_size": 0},
        {"time_limit": 0},
        {"surprise": 1},
        {"accept_status": [10**30]},
        {"headers": {"X": 1}},
    ],
    ids=str,
)
async def test_settings_that_are_not_valid(center: RunningCenter, settings: Any) -> None:
    """D1: checked before the run is stored, and the error names the field."""
    answer = await center.admin.put("/api/v1/runs/new", {"settings": settings})
    problem = await refused(center, answer, 400, "malformed")
    assert next(iter(settings)) in problem.detail


@pytest.mark.parametrize(
    "body",
    [
        {"settings": {"headers": {"X": "a\r\nY: b"}}},
        {"settings": {"headers": {"X\r\nY": "b"}}},
        {"settings": {"downloader": "gopher"}},
        {"job": "a\nb"},
        {"job": "x" * 201},
    ],
    ids=str,
)
async def test_runs_that_no_agent_could_work_for(center: RunningCenter, body: Any) -> None:
    """D1, fault 70: header injection and unknown downloaders end at the door."""
    answer = await center.admin.put("/api/v1/runs/new", body)
    await refused(center, answer, 400, "invalid_input")


@pytest.mark.parametrize("what", ["x", "-1", "1.5", "%00", "9" * 19, "1e3", "%D9%A1", "0x1"])
@pytest.mark.parametrize("path", ["requests/{}", "requests/{}/body", "requests/{}/record"])
async def test_ids_that_are_no_numbers(center: RunningCenter, path: str, what: str) -> None:
    answer = await center.admin.get(f"/api/v1/{path.format(what)}")
    await refused(center, answer, 400, "invalid_input")


async def test_numbers_that_are_no_ids(center: RunningCenter) -> None:
    for path, code in (
        ("requests/999999999999999999", "not_found"),
        ("requests/77/body", "not_found"),
        ("requests/1/body", "not_found"),
        ("blocks/999999999999999999", "unknown_block"),
        ("runs/other", "unknown_run"),
    ):
        await refused(center, await center.admin.get(f"/api/v1/{path}"), 404, code)


@pytest.mark.parametrize(
    "path",
    [
        "/requestqueue/r?limit=0",
        "/requestqueue/r?limit=-1",
        "/requestqueue/r?limit=x",
        "/requestqueue/r?limit=101",
        "/api/v1/runs?limit=-5",
        "/api/v1/runs?before=nan",
        "/api/v1/ledger?audit=perhaps",
        "/api/v1/agents/a/vitals?seconds=-1",
        "/api/v1/agents/a/vitals?seconds=inf",
    ],
)
async def test_queries_that_are_not_valid(center: RunningCenter, path: str) -> None:
    await refused(center, await center.admin.get(path), 400, "invalid_input")


async def test_blocks_to_collect_that_are_no_blocks(center: RunningCenter) -> None:
    for blocks in ([-1], [2**63], ["1"], list(range(10_001))):
        answer = await center.admin.post("/requestqueue/r/collected", {"blocks": blocks})
        await refused(center, answer, 400, "malformed")


async def test_a_run_that_is_not_there(center: RunningCenter) -> None:
    """The sentence says how to make one."""
    answer = await center.admin.post("/requestqueue/other", [URL])
    problem = await refused(center, answer, 404, "unknown_run")
    assert "PUT /api/v1/runs/other" in problem.detail


@pytest.mark.parametrize("verb", ["finish", "cancel"])
async def test_a_run_that_has_ended(fresh: RunningCenter, verb: str) -> None:
    await fresh.admin.post(f"/api/v1/runs/r/{verb}")
    answer = await fresh.admin.post("/requestqueue/r", [f"{URL}more"])
    problem = await refused(fresh, answer, 409, "conflict")
    assert "accepts no more requests" in problem.detail


async def test_a_verb_that_is_none(center: RunningCenter) -> None:
    await refused(center, await center.admin.post("/api/v1/runs/r/explode"), 404, "not_found")
    answer = await center.admin.post("/api/v1/agents/a1/explode")
    await refused(center, answer, 404, "not_found")
    answer = await center.admin.post("/api/v1/agents/nobody/disable")
    await refused(center, answer, 404, "unknown_agent")


async def test_a_path_and_a_method_that_are_none(center: RunningCenter) -> None:
    """A 405 names every method of the path, as the standard wants."""
    await refused(center, await center.admin.get("/nope"), 404, "not_found")
    answer = await center.admin.send("DELETE", "/requestqueue/r")
    await refused(center, answer, 405, "method_not_allowed")
    allowed = {method.strip() for method in answer.headers["Allow"].split(",")}
    assert allowed == {"GET", "HEAD", "POST"}


@pytest.mark.parametrize("method", ["OPTIONS", "PATCH", "TRACE"])
async def test_no_path_takes_a_method_that_it_does_not_list(
    center: RunningCenter, method: str
) -> None:
    """U1: a 405 with all methods of the path, for every caller; HEAD is wherever GET is."""
    by_path: dict[str, set[str]] = {}
    for row in api_table():
        both = {"GET", "HEAD"} if row.method == "GET" else {row.method}
        by_path.setdefault(row.path, set()).update(both)
    for path, methods in by_path.items():
        if method in methods:
            continue
        answer = await center.anyone.send(method, re.sub(r"{\w+}", "1", path))
        await refused(center, answer, 405, "method_not_allowed")
        assert {one.strip() for one in answer.headers["Allow"].split(",")} == methods, path


async def test_the_description_is_made_once(
    fresh: RunningCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U1: a caller that asks again gets the same bytes, and nothing is made for it."""
    made = Counter[str]()

    def counted(table: Sequence[Endpoint], public_url: str = "") -> dict[str, Any]:
        made[public_url] += 1
        return describe(table, public_url)

    monkeypatch.setattr(app, "describe", counted)
    pages = {(await fresh.anyone.get("/openapi.json")).content for _ in range(3)}
    assert (await fresh.anyone.get("/docs")).status == 200
    assert (len(pages), made.total()) == (1, 1)


async def test_an_idempotency_key_is_taken_and_a_batch_counts_once(fresh: RunningCenter) -> None:
    """Fault 3: the same batch again is known, with the key and without it."""
    body = msgspec.json.encode([f"{URL}{n}" for n in range(10)])
    headers = {"Content-Type": codec.JSON, "Idempotency-Key": "once"}
    first, *again = [
        (await fresh.admin.send("POST", path, body, sent)).json()
        for sent in (headers, {"Content-Type": codec.JSON})
        for path in ("/api/v1/runs/r/requests", "/requestqueue/r")
    ]
    assert first == {"new": 10, "known": 0}
    assert again == [{"new": 0, "known": 10}] * 3
    assert (await fresh.ledger("r")).accepted == 11


async def test_people_see_every_setting_of_a_run(center: RunningCenter) -> None:
    """R3: defaults too, in the list and alone; agents get the same."""
    settings = (await center.admin.get("/api/v1/runs/r")).json()["run"]["settings"]
    assert settings["block_size"] == 100
    assert settings["retries"] == 0
    assert settings["priority"] == 5
    assert settings["time_limit"] == 120.0
    listed = (await center.admin.get("/api/v1/runs")).json()["items"][0]["settings"]
    assert listed == settings
