"""Charts, alerts and failure groups by API and command line, on a running center."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.center.http.authentication import Role
from skep.cli.main import skep
from skep.store.ports import Store
from skep.store.sql.store import SqlStore
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until

QUIET = "/api/v1/series?name=requests.done"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data") as running:
        yield running


async def step(center: RunningCenter) -> None:
    """One step of monitoring now, instead of in ten seconds."""
    await center.services.monitoring.monitor.step()


async def some_work(center: RunningCenter, failed: int = 3) -> None:
    await center.archive_pages(4, "r")
    await center.open_run("bad", retries=0)
    await center.put("bad", [{"uri": f"http://b.test/{n}"} for n in range(failed)])
    await center.dispatched()
    hand = center.hand_agent()
    for block in await hand.lease(want=4):
        assert await hand.finish(block, "timeout", 0) == "stored"


async def cli(center: RunningCenter, *words: str) -> Any:
    """The JSON of a command."""
    token = center.folder / "admin-token"
    token.write_text(center.admin.token)
    arguments = [*words, "--json", "--center", center.url, "--token-file", str(token)]
    result = await asyncio.to_thread(CliRunner().invoke, skep, arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


async def test_a_chart_has_what_was_done(center: RunningCenter) -> None:
    await some_work(center)
    await step(center)
    path = "/api/v1/series?name=requests.accepted,requests.done,requests.dead,latency,agents"
    chart = (await center.admin.get(path)).json()
    assert (chart["step"], chart["to"] - chart["from"]) in {(10, 3600), (10, 3610)}
    sums = {
        (line["name"], line["label"]): sum(filter(None, line["points"])) * chart["step"]
        for line in chart["lines"]
    }
    assert sums["requests.accepted", ""] == pytest.approx(7)
    assert sums["requests.done", ""] == pytest.approx(4)
    assert sums["requests.dead", ""] == pytest.approx(3)
    assert {label for name, label in sums if name == "latency"} == {"p50", "p90", "p99"}
    of_run = (await center.admin.get(f"{QUIET},hosts.requests&run=r")).json()
    hosts = [line["label"] for line in of_run["lines"] if line["name"] == "hosts.requests"]
    assert sum(filter(None, of_run["lines"][0]["points"])) * 10 == pytest.approx(4)
    assert hosts == [""], "agents by hand send no notes about hosts"
    shown = await cli(center, "chart", "requests.done")
    assert shown["lines"][0]["name"] == "requests.done"
    known = await cli(center, "chart")
    assert "hosts.requests" in {one["name"] for one in known["items"]}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("name=nosuch", "is not a series; use one of"),
        ("name=", "name"),
        ("", "name"),
        ("name=%00'%3B--", "is not a series"),
        (f"name={','.join(f's{n}' for n in range(11))}", "at most 10 series"),
        ("name=requests.done&from=5&to=5", "must be before"),
        ("name=requests.done&from=9&to=5", "must be before"),
        ("name=requests.done&from=nan", "from"),
        ("name=requests.done&to=1e300", "to"),
        ("name=requests.done&step=-1", "step"),
        ("name=requests.done&step=x", "step"),
        ("name=ledger&run=r", "for all runs together"),
        ("name=requests.done&since=5", "since"),
    ],
)
async def test_bad_questions_get_an_answer(center: RunningCenter, query: str, words: str) -> None:
    problem = (await center.admin.get(f"/api/v1/series?{query}")).problem()
    assert problem.status == 400
    assert words in problem.detail


async def test_step_0_and_huge_ranges_are_bounded(center: RunningCenter) -> None:
    for query in ("step=0", "from=0&to=99999999999", "from=0", "step=1000000000", "to=1"):
        chart = (await center.admin.get(f"{QUIET}&{query}")).json()
        assert len(chart["lines"][0]["points"]) <= 1001


async def test_rules(center: RunningCenter) -> None:
    names = {one["name"] for one in (await center.admin.get("/api/v1/alert-rules")).json()["items"]}
    assert {"failure_rate", "silent_job", "stale_run", "dead_agent", "disk_free"} <= names
    assert {"lane_stuck", "silent_failure"} <= names
    made = await cli(center, "alerts", "set", "failure_rate", "--threshold", "0.9", "--for", "2min")
    assert (made["changed"], made["rule"]["threshold"], made["rule"]["duration"]) == (
        True,
        0.9,
        120,
    )
    assert made["rule"]["clear"] == 0.3, "what is not given stays"
    back = await cli(center, "alerts", "unset", "failure_rate")
    assert back["rule"]["rule"]["threshold"] == 0.5
    own = ["--measure", "series", "--series", "bytes.received", "--threshold", "5"]
    await cli(center, "alerts", "set", "much", *own)
    assert "much" in {one["name"] for one in (await cli(center, "alerts", "rules"))["items"]}
    await cli(center, "alerts", "unset", "much")
    again = (await center.admin.send("DELETE", "/api/v1/alert-rules/much")).problem()
    assert again.status == 404


@pytest.mark.parametrize(
    ("name", "rule", "words"),
    [
        ("x", {"measure": "nosuch", "threshold": 1}, "measure"),
        ("x", {"measure": "series", "threshold": 1}, "is not a series"),
        ("x", {"measure": "series", "threshold": 1, "series": "a.*"}, "is not a series"),
        ("x", {"measure": "failure_rate", "threshold": "NaN"}, "threshold"),
        ("x", {"measure": "failure_rate", "threshold": 1e300}, "threshold"),
        ("x", {"measure": "failure_rate", "threshold": 1, "duration": -1}, "duration"),
        ("x", {"measure": "failure_rate", "threshold": 1, "window": 0}, "window"),
        ("x", {"measure": "failure_rate", "threshold": 1, "clear": 2}, "at or below"),
        ("x", {"measure": "failure_rate", "threshold": 1, "label": "200"}, "belong to"),
        ("x", {"measure": "failure_rate", "threshold": 1, "regex": "(a+)+$"}, "regex"),
        ("x", {"measure": "silent_failure", "threshold": 1}, "exists once"),
        ("X!", {"measure": "failure_rate", "threshold": 1}, "not a name of a rule"),
        ("x" * 33, {"measure": "failure_rate", "threshold": 1}, "not a name of a rule"),
        ("disk_free", {"measure": "failure_rate", "threshold": 1}, "built in"),
        ("x", {"threshold": 1}, "measure"),
        ("failure_returned", {"measure": "failure_rate", "threshold": 1}, "choose another name"),
    ],
)
async def test_bad_rules_change_nothing(
    center: RunningCenter, name: str, rule: dict[str, Any], words: str
) -> None:
    before = (await center.admin.get("/api/v1/alert-rules")).json()
    problem = (await center.admin.put(f"/api/v1/alert-rules/{name}", rule)).problem()
    assert problem.status == 400
    assert words in problem.detail
    assert (await center.admin.get("/api/v1/alert-rules")).json() == before


async def test_alerts_are_acknowledged_and_muted(center: RunningCenter) -> None:
    services = center.services
    now = services.clock.now()
    await services.store.alerts.raise_("archive_lost", "c1", "http://u:secret@h/ gone", now)
    (line,) = (await center.admin.get("/api/v1/alerts")).json()["items"]
    old = {"kind", "subject", "detail", "times", "first_at", "last_at"}
    assert old <= line.keys(), "what was in the answer before is still there"
    assert line["state"] == "firing"
    viewer = await center.caller(Role.VIEWER)
    assert "secret" not in (await viewer.get("/api/v1/alerts")).content.decode()
    which = {"kind": "archive_lost", "subject": "c1"}
    assert (await viewer.post("/api/v1/alerts/acknowledge", which)).status == 403
    await cli(center, "alerts", "ack", "archive_lost", "c1")
    (line,) = (await cli(center, "alerts"))["items"]
    assert (line["state"], line["acknowledged_by"]) == ("acknowledged", "admin")
    assert (await cli(center, "alerts", "mute", "archive_lost", "c1", "--for", "2h"))["state"] == (
        "muted"
    )
    muted = await cli(center, "alerts", "mute", "archive_lost", "c1", "--off")
    assert muted["state"] == "acknowledged"
    for until_ in (now - 1, 1.0, now + 10**9):
        body = {**which, "until": until_}
        assert (await center.admin.post("/api/v1/alerts/mute", body)).problem().status == 409
    gone = {"kind": "archive_lost", "subject": "c2"}
    assert (await center.admin.post("/api/v1/alerts/acknowledge", gone)).status == 404
    assert (await center.admin.get("/api/v1/alerts?state=resolved")).json()["items"] == []


async def test_failure_groups(center: RunningCenter) -> None:
    await some_work(center)
    (group,) = (await cli(center, "failures", "groups"))["items"]
    assert (await cli(center, "failures", "groups", "dead:>0"))["items"] == [group]
    assert (await cli(center, "failures", "groups", "dead:>0", "state:ignored"))["items"] == []
    assert (group["state"], group["died"], group["dead"], group["host"]) == ("open", 3, 3, "b.test")
    name = group["group"]
    kept = await cli(center, "failures", "resolve", name, "--note", "fixed, für immer")
    assert (kept["state"], kept["note"]) == ("resolved", "fixed, für immer")
    assert (await cli(center, "failures", "groups", "--state", "open"))["items"] == []
    await cli(center, "failures", "retry", name, "--yes")
    (group,) = (await cli(center, "failures", "groups"))["items"]
    assert (group["died"], group["dead"]) == (3, 0)
    await center.dispatched()
    hand = center.hand_agent()
    for block in await hand.lease(want=4):
        await hand.finish(block, "timeout", 0)
    await step(center)
    details = (await center.admin.get(f"/api/v1/failure-groups/{name}")).json()
    assert (details["group"]["state"], details["group"]["reopened"]) == ("open", 1)
    assert sum(details["history"]["hours"].values()) == 6
    (line,) = (await cli(center, "alerts"))["items"]
    assert (line["kind"], line["subject"]) == ("failure_returned", name)
    await cli(center, "failures", "ignore", name)
    assert (await cli(center, "alerts"))["items"] == []
    for path in ("zzz@b.test", "0a@nowhere"):
        problem = (await center.admin.post(f"/api/v1/failure-groups/{path}/resolve", {})).problem()
        assert problem.status in {400, 404}
    body = {"note": "x" * 501}
    answer = await center.admin.post(f"/api/v1/failure-groups/{name}/resolve", body)
    assert answer.problem().status == 400


async def test_groups_are_paged_by_a_unique_key(center: RunningCenter) -> None:
    await center.open_run("bad", retries=0)
    await center.put("bad", [{"uri": f"http://h{n}.test/"} for n in range(7)])
    await center.dispatched()
    hand = center.hand_agent()
    await hand.register()
    for block in await hand.lease(want=20):
        await hand.finish(block, "timeout", 0)
    seen: list[str] = []
    after = ""
    while True:
        page = (await center.admin.get(f"/api/v1/failure-groups?limit=2&after={after}")).json()
        seen += [one["host"] for one in page["items"]]
        after = page["next"]
        if not after:
            break
    assert sorted(seen) == [f"h{n}.test" for n in range(7)]
    answer = await center.admin.get("/api/v1/failure-groups?after=nonsense")
    assert answer.problem().status == 400


async def counted(store: Store) -> float:
    rows = await store.monitoring.series.read(10, "", 0, 2**40, 100)
    return sum(row.cells.get("requests.accepted", {}).get("", (0, 0))[0] for row in rows)


async def test_a_center_that_stops_writes_its_last_figures(tmp_path: Path) -> None:
    async with running_center(tmp_path) as center:
        await center.open_run("r")
        await center.put("r", [{"uri": "http://a.test/"}])
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await store.open()
    assert await counted(store) == 1
    await store.close()


@pytest.mark.slow
async def test_the_loop_writes_figures(center: RunningCenter) -> None:
    await center.open_run("r")
    await center.put("r", [{"uri": "http://a.test/"}])

    async def written() -> bool:
        return await counted(center.services.store) == 1

    await until(written, seconds=60)
