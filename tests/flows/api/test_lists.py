"""Lists at a real center: filters, pages, counts, labels and bad input, at every list endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from skep.center.http.authentication import Role
from skep.cli.main import run as command_line
from skep.cli.terminal.filter_completion import suggestions
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.wire.api.listing import page_key
from skep.wire.filter.tables import TABLES

#: Path of each list, with the name of its fields.
LISTS = {
    "/api/v1/runs": "runs",
    "/api/v1/jobs": "jobs",
    "/api/v1/requests": "requests",
    "/api/v1/agents": "agents",
    "/api/v1/dispatches": "dispatches",
    "/api/v1/jobs/one/fires": "fires",
    "/api/v1/schedules": "schedules",
    "/api/v1/alerts": "alerts",
    "/api/v1/sites": "hosts",
    "/api/v1/tokens": "tokens",
    "/api/v1/deliveries": "deliveries",
    "/api/v1/notices": "notices",
    "/api/v1/failure-groups": "failure-groups",
    "/api/v1/operations": "operations",
    "/api/v1/users": "users",
    "/api/v1/sessions": "sessions",
    "/api/v1/audit": "audit",
}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


async def fill(center: RunningCenter) -> None:
    """Two runs of 30 requests, half of them dead, and three jobs."""
    for run, team in (("first", "a"), ("second", "b")):
        body = {"labels": {"team": team}, "settings": {"robots": False}}
        assert (await center.admin.put(f"/api/v1/runs/{run}", body)).status == 200
        await center.put(run, [f"http://{run}{n % 3}.example.com/{run}/{n}" for n in range(30)])
    for name, labels in (("one", {"eu": ""}), ("two", {"eu": "", "team": "a"}), ("three", {})):
        job = {"requests": ["http://example.com/"], "labels": labels, "enabled": name != "three"}
        assert (await center.admin.put(f"/api/v1/jobs/{name}", job)).status == 200
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    while blocks := await agent.lease(10):
        await agent.report(*(BlockReport(b.id, b.token, outcomes(b)) for b in blocks))


def outcomes(block: Any) -> list[Outcome]:
    return [
        Outcome(work.id, "timeout" if work.id % 2 else "", 0, "slow" if work.id % 2 else "")
        for work in works_of(block)
    ]


async def ask(center: RunningCenter, path: str, text: str, **more: object) -> Any:
    query = "".join(f"&{name}={quote(str(value))}" for name, value in more.items())
    answer = await center.admin.get(f"{path}?filter={quote(text)}{query}")
    assert answer.status == 200, (path, text)
    return answer.json()


async def walk(center: RunningCenter, path: str, text: str, limit: int) -> list[Any]:
    """Every page of a list."""
    found, page = [], ""
    while True:
        answer = await ask(center, path, text, limit=limit, page=page)
        assert (answer["count"] is None) == bool(page)
        found += answer["items"]
        page = answer["next_page"] or ""
        if not page:
            return found


def still(items: list[Any]) -> list[Any]:
    """Without what changes by itself."""
    return [
        {name: one[name] for name in one if name not in {"last_beat_age", "pace"}} for one in items
    ]


async def test_every_list_takes_a_filter_and_pages(center: RunningCenter) -> None:
    """R3: one filter language for all lists; pages follow a unique key."""
    await fill(center)
    for path, name in LISTS.items():
        whole = await ask(center, path, "", limit=1000)
        assert whole["exact"], path
        assert whole["count"] == len(whole["items"]), path
        assert still(await walk(center, path, "", 2)) == still(whole["items"]), path
        field = TABLES[name].fields[0]
        nothing = await ask(center, path, f"-{field.name}:{field.examples[0]} zzzzqqq")
        assert nothing["items"] == [], path


async def test_failure_groups_by_filter(center: RunningCenter) -> None:
    """R3: groups are rows with kept counts."""
    await fill(center)
    groups = (await ask(center, "/api/v1/failure-groups", "error:timeout"))["items"]
    assert min(one["host"] for one in groups) == "first0.example.com"
    some = await ask(center, "/api/v1/failure-groups", "host:first*", limit=2)
    assert (some["count"], len(some["items"])) == (3, 2)
    assert (await ask(center, "/api/v1/failure-groups", "error:network"))["items"] == []
    one = groups[0]["group"]
    assert (
        await center.admin.post(f"/api/v1/failure-groups/{quote(one)}/ignore", {})
    ).status == 200
    ignored = await ask(center, "/api/v1/failure-groups", "state:ignored")
    assert [g["group"] for g in ignored["items"]] == [one]


async def test_requests_by_run_state_failure_host_and_time(center: RunningCenter) -> None:
    await fill(center)
    path = "/api/v1/requests"
    dead = await ask(center, path, "state:dead run:first", limit=1000)
    assert dead["count"] == len(dead["items"]) == (await center.ledger("first")).dead > 0
    ids = [item["id"] for item in dead["items"]]
    assert ids == sorted(ids, reverse=True)
    for text, count in {
        "run:first": 30,
        "job:second": 30,
        "error:timeout": 30,
        "error:timeout state:done": 0,
        "host:first0.example.com": 10,
        "host:*.example.com state:dead": 30,
        "since:1h": 60,
        "since:1h until:2h": 0,
        "until:1h": 0,
        "label:team=a": 30,
        "-label:team": 0,
        "state:dead,done": 60,
        "first/7": 1,
    }.items():
        assert len(await walk(center, path, text, 7)) == count, text
    older = (await center.admin.get(f"{path}?run=first&filter=state:dead&limit=1000")).json()
    assert older["items"] == dead["items"]


async def test_counts_come_from_kept_sums(center: RunningCenter) -> None:
    """A first page of one item knows how many there are."""
    await fill(center)
    for text, count in {
        "": 60,
        "run:first": 30,
        "state:dead": 30,
        "job:first state:done": 15,
    }.items():
        answer = await ask(center, "/api/v1/requests", text, limit=1)
        assert (answer["count"], answer["exact"]) == (count, True), text


async def test_runs_and_jobs_by_label_and_state(center: RunningCenter) -> None:
    await fill(center)
    names = [run["id"] for run in (await ask(center, "/api/v1/runs", "label:team"))["items"]]
    assert names == ["second", "first"]
    (run,) = (await ask(center, "/api/v1/runs", "label:team=a state:open"))["items"]
    assert run["labels"] == {"team": "a"}
    jobs = await ask(center, "/api/v1/jobs", "label:eu state:enabled")
    assert [kept["job"]["name"] for kept in jobs["items"]] == ["one", "two"]
    assert [k["job"]["name"] for k in (await ask(center, "/api/v1/jobs", "t*"))["items"]]
    started = await center.admin.post(
        "/api/v1/jobs/two/run?labels=" + quote('{"night": "yes"}'), {}
    )
    run = (await center.admin.get(f"/api/v1/runs/{started.json()['run']}")).json()["run"]
    assert run["labels"] == {"eu": "", "team": "a", "night": "yes"}


BAD = {
    "x" * 10_000: "limit is 2000",
    "state:finish": "finished",
    "stat:running": "state",
    "state:>running": "operator",
    "a " * 1000: "50 terms",
    'id:"\\\\\\\\\\"': "closing",
    "created:soon": "not a time",
}


async def test_a_wrong_filter_says_what_is_wrong(center: RunningCenter) -> None:
    for text, word in BAD.items():
        answer = await center.admin.get(f"/api/v1/runs?filter={quote(text)}")
        problem = answer.problem()
        assert (problem.status, problem.code) == (400, "invalid_filter"), text[:40]
        assert word in problem.detail, problem.detail
    nul = await center.admin.get("/api/v1/runs?filter=id:%00")
    assert nul.problem().status == 400, nul.problem()
    assert (await ask(center, "/api/v1/runs", "(a+)+$ " + "(" * 40))["items"] == []


async def test_a_page_key_of_another_list_or_filter_is_refused(center: RunningCenter) -> None:
    await fill(center)
    key = (await ask(center, "/api/v1/requests", "state:dead", limit=2))["next_page"]
    forged = [page_key("requests", "", ("x",)), "AAAA", "%00", "é" * 9, "x" * 1999, key[:-3]]
    for path, text, page in [
        ("/api/v1/runs", "state:dead", key),
        ("/api/v1/requests", "state:done", key),
        *(("/api/v1/requests", "state:dead", one) for one in forged),
    ]:
        answer = await center.admin.get(f"{path}?filter={text}&page={quote(page)}")
        assert answer.problem().status == 400, (path, page)


@pytest.mark.parametrize(
    "labels",
    [{"a=b": ""}, {"": "x"}, {"a": "x" * 101}, {"a": "b\0"}, {f"n{n}": "" for n in range(33)}],
)
async def test_labels_have_bounds(center: RunningCenter, labels: dict[str, str]) -> None:
    job = {"requests": ["http://example.com/"], "labels": labels}
    assert (await center.admin.put("/api/v1/jobs/j", job)).problem().status == 400
    assert (await center.admin.put("/api/v1/runs/r", {"labels": labels})).problem().status == 400
    assert (await ask(center, "/api/v1/runs", ""))["items"] == []


async def test_views_are_private_or_shared(center: RunningCenter) -> None:
    """R3: a filter under a name; only its owner changes it."""
    path = "/api/v1/views/broken"
    body = {"resource": "runs", "filter": "state:failed", "shared": False}
    owner = (await center.admin.put(path, body)).json()["owner"]
    assert owner.startswith("token admin.token of ")
    assert (await center.admin.put(path, {**body, "filter": "state:paused"})).status == 200
    (kept,) = (await center.admin.get("/api/v1/views")).json()["items"]
    assert (kept["filter"], kept["shared"]) == ("state:paused", False)
    viewer = await center.caller(Role.VIEWER)
    assert (await viewer.get("/api/v1/views")).json()["items"] == []
    assert (await viewer.put(path, {**body, "shared": True})).problem().status == 403
    assert (await viewer.send("DELETE", path)).problem().status == 404
    await center.admin.put(path, {**body, "shared": True})
    (shown,) = (await viewer.get("/api/v1/views")).json()["items"]
    assert shown["owner"] == owner
    assert (await viewer.send("DELETE", path)).problem().status == 404
    assert (await center.admin.send("DELETE", path)).json()["name"] == "broken"
    for wrong in ({**body, "filter": "stat:x"}, {**body, "resource": "walls"}):
        assert (await center.admin.put(path, wrong)).problem().status == 400
    assert (await center.admin.put("/api/v1/views/-x%0a", body)).problem().status == 400
    assert (await center.admin.get("/api/v1/views")).json()["items"] == []


async def test_the_command_line_takes_filters_and_views(
    center: RunningCenter, capsys: pytest.CaptureFixture[str]
) -> None:
    """R3: the same words in the shell, and a saved view as `@NAME`."""
    await fill(center)
    at = ["--data", str(center.folder)]

    async def told(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(command_line, [*words, *at])
        said = capsys.readouterr()
        return code, said.out + said.err

    code, text = await told("request", "ls", "state:dead", "run:first", "--limit", "2")
    assert (code, "2 of 15; next: --page" in text) == (0, True), text
    code, text = await told("runs", "ls", "-label:team=a", "label:team")
    assert (code, "second" in text, "first" in text) == (0, True, False), text
    assert (await told("view", "save", "mine", "runs", "label:team=a"))[0] == 0
    code, text = await told("runs", "ls", "@mine", "state:open")
    assert (code, "first" in text, "second" in text) == (0, True, False), text
    code, text = await told("job", "ls", "label:eu", "--json")
    assert [one["job"]["name"] for one in json.loads(text)["items"]] == ["one", "two"]
    for words, said in [
        (("runs", "ls", "stat:x"), "state"),
        (("runs", "ls", "@nothing"), "no view"),
        (("job", "ls", "state:>x"), "operator"),
    ]:
        code, text = await told(*words)
        assert (code != 0, said in text) == (True, True), text
    assert (await told("view", "rm", "mine"))[0] == 0


async def test_every_list_command_takes_a_filter(
    center: RunningCenter, capsys: pytest.CaptureFixture[str]
) -> None:
    """R3: the filter narrows the list, counts it and pages it; an error marks its place."""
    await fill(center)
    at = ["--data", str(center.folder)]

    async def told(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(command_line, [*words, *at])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, text, _ = await told("sites", "ls", "host:first*", "--limit", "2")
    assert (code, "first0.example.com" in text, "second" in text) == (0, True, False), text
    assert "2 of 3" in text
    key = text.rpartition("--page ")[2].strip()
    code, text, _ = await told("sites", "ls", "host:first*", "--limit", "2", "--page", key)
    assert (code, "first2.example.com" in text, "first0" in text) == (0, True, False), text
    agent = json.loads((await told("agents", "ls", "state:alive", "--json"))[1])
    assert (agent["count"], len(agent["items"])) == (1, 1)
    for words in (
        ("agents", "ls", "-state:alive"),
        ("token", "ls", "role:operator"),
        ("data", "deliveries", "job:nothing"),
        ("dispatch", "--log", "kind:failed"),
        ("schedule", "ls", "job:nothing"),
        ("schedule", "fires", "one", "state:missed", "-n", "5"),
        ("alerts", "ls", "--all", "kind:nothing"),
        ("storage", "--notices", "state:given-up"),
    ):
        code, text, said = await told(*words)
        assert (code, "match the filter; its fields are " in text) == (0, True), (words, said)
        assert json.loads((await told(*words, "--json"))[1])["items"] == []
    assert json.loads((await told("audit", "-user:*", "--json"))[1]) == {"items": []}
    for wrong, mark in [
        (("agents", "ls", "state:alive", "stat:x"), "  state:alive stat:x\n              ^^^^\n"),
        (("audit", "usr:x"), "  usr:x\n  ^^^\n"),
        (("logs", "level:high"), "  level:high\n        ^^^^\n"),
    ]:
        code, _, said = await told(*wrong)
        assert (code != 0, mark in said) == (True, True), said
    for refused in (
        ("dispatch", "kind:failed"),
        ("storage", "state:told"),
        ("runs", "ls", "--limt=5"),
    ):
        assert (await told(*refused))[0] == 2, refused
    code, text, _ = await told("view", "save", "gone", "agents", "-state:alive")
    assert code == 0
    assert "match the filter" in (await told("agents", "ls", "@gone"))[1]


def test_the_shell_completes_fields_and_words() -> None:
    assert "state:" in [one.value for one in suggestions("runs", "st")]
    assert "state:failed" in [one.value for one in suggestions("runs", "state:fa")]
    assert suggestions("runs", "nosuch:x") == []
