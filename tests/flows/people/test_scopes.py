"""A caller with a scope: every route of the table, asked for what is outside. 0 leaks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
import pytest_asyncio

from skep.center.app import api_table
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Endpoint, Scoping
from skep.testing.grounds.browsers import add_user, logged_in
from skep.testing.grounds.centers import Answer, Caller, RunningCenter, running_center
from skep.testing.grounds.labelled_worlds import World, build_world, state_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLE = [row for row in api_table() if row.role in {Role.VIEWER, Role.OPERATOR, Role.ADMIN}]
#: In every name of an object that the caller must not see, and of one that it may.
OUTSIDE, INSIDE = "foreign", "domestic"
#: Of a name that does not exist.
NOTHING = "nothing"
#: Path parameters for objects that have no labels.
OTHERS = ("user", "user_group", "token_id", "session", "digest", "rule", "secret")
#: Lists that show one of the caller's objects without a filter. The others have none in this test.
SHOWN = {
    *("list_runs", "list_jobs", "list_requests", "list_schedules", "list_failures", "list_agents"),
    *("list_failure_groups", "list_operations", "list_dispatches"),
    *("list_log_lines", "get_log_file", "watch_events"),
}
#: Routes for objects that may be new, and figures that need a run: their errors come from what the
#: call says, not from the route.
NEEDS_MORE = {"open_run", "set_job", "start_driver", "get_series"}
WATCHES = (
    *("runs", "requests", "failures", "jobs", "agents", "operations"),
    *("run:{run}", "request:{request}", "job:{job}", "agent:{agent}", "operation:{operation}"),
    *("runs:id:{run}", "requests:run:{run}", "jobs:name:{job}", "agents:id:{agent}"),
    *("runs:label:team=a,team=b", "requests:-label:none"),
)


@dataclass
class Ground:
    """A center with two worlds."""

    center: RunningCenter
    inside: World
    outside: World
    callers: dict[str, Caller]

    def outer(self) -> dict[str, str]:
        return dict.fromkeys(OTHERS, OUTSIDE) | self.outside.paths

    def inner(self) -> dict[str, str]:
        return dict.fromkeys(OTHERS, OUTSIDE) | self.inside.paths

    def ghosts(self) -> dict[str, str]:
        """Of the same form, and not there."""
        names = dict.fromkeys((*OTHERS, "agent", "identity", "job", "run", "view"), NOTHING)
        numbers = dict.fromkeys(("request", "block", "operation"), "900000000")
        group = f"0123456789ab@{NOTHING}.test"
        return names | numbers | {"host": f"{NOTHING}.test", "group": group, "no": "0"}

    def ghostly(self, text: str, path: str = "") -> str:
        """A text about what is outside, as if it were about what is not there."""
        for name in re.findall(r"{(\w+)}", path):
            if name in {"request", "block", "operation", "group"}:
                text = text.replace(self.outer()[name], self.ghosts()[name])
        return text.replace(OUTSIDE, NOTHING)


def named(row: Endpoint) -> str:
    return row.route.id


async def token(center: RunningCenter, role: str, *scope: str) -> Caller:
    body = {"role": role, "name": role, "scope": list(scope)}
    made = (await center.admin.post("/api/v1/tokens", body)).json()["token"]
    return Caller(center.anyone._session, center.url, made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        outside = await build_world(running, OUTSIDE, "b")
        inside = await build_world(running, INSIDE, "a")
        await running.admin.put(f"/api/v1/sites/{OUTSIDE}.test", {"rate": 1})
        await add_user(running, OUTSIDE)
        await running.admin.put(f"/api/v1/groups/{OUTSIDE}", {"labels": ["team=b"]})
        callers = {role: await token(running, role, "team=a") for role in ("viewer", "admin")}
        yield Ground(running, inside, outside, callers)


async def ask(caller: Caller, row: Endpoint, paths: dict[str, str], query: str = "") -> Answer:
    verb = row.parameters.get("verb", {}).get("enum", ["pause"])[0]
    path = re.sub(r"{(\w+)}", lambda found: ({"verb": verb} | paths)[found[1]], row.path)
    path += f"?{query or urlencode(required(row, paths), doseq=True)}"
    body = row.route.example
    if row.takes is None or body is None:
        return await caller.send(row.method, path)
    data = msgspec.json.encode(body)
    return await caller.send(row.method, path, data, {"Content-Type": "application/json"})


def required(row: Endpoint, paths: dict[str, str]) -> dict[str, Any]:
    """Parameters without which a call is refused, or does not end."""
    if row.route.id == "watch_events":
        return {"watch": [one.format(**paths) for one in WATCHES], "seconds": 0.2}
    if row.route.id == "get_log_context":
        of = {"source": f"{paths['run']}/0", "kind": "app"}
        return {**of, "run": paths["run"], "agent": paths["agent"], "token": 1}
    return {"name": "requests.done"} if row.route.id == "get_series" else {}


def queries(row: Endpoint, paths: dict[str, str]) -> Iterator[str]:
    """Questions for what these paths name, with every parameter that can name it."""
    fields = {one.name for one in msgspec.structs.fields(row.asks)} if row.asks else set()
    given = {**required(row, paths)}
    yield urlencode(given, doseq=True)
    texts = {"run": paths["run"], "job": paths["job"], "host": paths["host"], "text": paths["run"]}
    texts |= {"group": paths["group"], "source": paths["agent"], "agent": paths["agent"]}
    texts |= {"after": "", "user": OUTSIDE} if "filter" in fields else {}
    for name in texts.keys() & fields:
        yield urlencode({**given, name: texts[name]}, doseq=True)
    if "filter" in fields:
        for wanted in filters(paths):
            yield urlencode({**given, "filter": wanted}, doseq=True)
    if "pattern" in fields:
        yield urlencode({**given, "pattern": paths["run"]}, doseq=True)


def filters(paths: dict[str, str]) -> list[str]:
    """For any list; those that a list does not know are refused."""
    fields = ("run", "job", "id", "name", "agent", "host", "object", "subject", "sink")
    by_field = [f"{name}:{paths.get(name, paths['run'])}" for name in fields]
    labels = ["label:team=b", "label:team=a,team=b", "-label:team=a", "label:team"]
    return ["", *by_field, *labels, paths["run"], f"id:{paths['request']}", "-id:0"]


# -- what is outside


@pytest.mark.parametrize("role", ["viewer", "admin"])
@pytest.mark.parametrize("row", TABLE, ids=named)
async def test_nothing_outside_the_scope_is_shown_or_changed(
    ground: Ground, row: Endpoint, role: str
) -> None:
    """P4: by id, filter, count, event, log, export, chart and operation; what is outside is
    answered like what does not exist."""
    caller, before = ground.callers[role], await state_of(ground.center, ground.outside)
    if row.method == "GET":
        asked = list(zip(queries(row, ground.outer()), queries(row, ground.ghosts()), strict=True))
    else:
        asked = [("", "")]
    for outer, ghost in asked:
        answer = await ask(caller, row, ground.outer(), outer)
        absent = await ask(caller, row, ground.ghosts(), ghost)
        assert answer.status == absent.status, (outer, answer.content, absent.content)
        if answer.status >= 300:
            detail = ground.ghostly(answer.problem().detail, row.path)
            assert detail == absent.problem().detail
            continue
        assert row.scoped is not Scoping.GLOBAL
        if row.scoped is not Scoping.OWN and row.route.id != "watch_events":
            assert OUTSIDE.encode() not in answer.content, outer
    assert await state_of(ground.center, ground.outside) == before


@pytest.mark.parametrize("row", TABLE, ids=named)
async def test_a_route_that_does_not_declare_is_refused(ground: Ground, row: Endpoint) -> None:
    """Closed by default: also for what is inside, and for an admin."""
    paths = ground.ghosts() | {"agent": NOTHING}
    answer = await ask(ground.callers["admin"], row, paths)
    if row.scoped is Scoping.GLOBAL:
        assert (answer.status, answer.problem().code) == (403, "forbidden")
    elif row.route.id not in NEEDS_MORE:
        assert answer.status != 403


async def test_events_show_only_what_is_inside(ground: Ground) -> None:
    """Issue 12: the name of a watch comes back, an object never does."""
    row = next(one for one in TABLE if one.route.id == "watch_events")
    answer = await ask(ground.callers["viewer"], row, ground.outer())
    events = [line for line in answer.content.split(b"\n") if line.startswith(b"data: ")]
    pages = {one["watch"]: one["items"] for one in map(msgspec.json.decode, map(_data, events))}
    assert len(pages) == len(set(WATCHES))
    assert OUTSIDE not in str(list(pages.values()))
    assert [one["id"] for one in pages["runs"]] == [INSIDE]
    assert pages[f"run:{OUTSIDE}"] == pages[f"job:{OUTSIDE}"] == []
    assert pages[f"request:{ground.outside.paths['request']}"] == []


def _data(line: bytes) -> bytes:
    return line.removeprefix(b"data: ")


# -- what is inside


@pytest.mark.parametrize("row", [row for row in TABLE if row.method == "GET"], ids=named)
async def test_what_is_inside_is_shown(ground: Ground, row: Endpoint) -> None:
    """The limit hides nothing that the caller may see."""
    if row.scoped in {Scoping.GLOBAL, Scoping.OWN} or row.route.id == "get_instance_log":
        return
    query = urlencode({"name": "requests.done", "run": INSIDE})
    answer = await ask(
        ground.callers["admin"], row, ground.inner(), query if row.route.id == "get_series" else ""
    )
    assert answer.status == 200, answer.content
    if row.route.id in SHOWN:
        assert INSIDE.encode() in answer.content


async def test_counts_are_those_of_the_scope(ground: Ground) -> None:
    viewer, admin = ground.callers["viewer"], ground.center.admin
    for resource in ("runs", "jobs", "requests"):
        path = f"/api/v1/{resource}?filter=&limit=1"
        mine, all_ = (await viewer.get(path)).json(), (await admin.get(path)).json()
        assert mine["exact"] is True
        assert 0 < mine["count"] < all_["count"]
    found = (await viewer.get("/api/v1/failures")).json()
    assert (found["requests"], len(found["items"])) == (1, 1)


@pytest.mark.parametrize("path", ["failure-groups", "operations"])
@pytest.mark.parametrize("role", ["viewer", "admin"])
async def test_lists_about_all_runs_refuse_a_filter(ground: Ground, role: str, path: str) -> None:
    """P4: their rows count the work of all runs. The admin without a scope gets them."""
    caller = ground.callers[role]
    for query in ("filter=", f"filter={OUTSIDE}", "filter=&page=x", "filter=bad%3A%3A"):
        refused = await caller.get(f"/api/v1/{path}?{query}")
        assert refused.status == 403, refused.content
        assert "scope" in refused.problem().detail
    assert (await caller.get(f"/api/v1/{path}")).status == 200
    every = await ground.center.admin.get(f"/api/v1/{path}?filter=")
    assert OUTSIDE.encode() in every.content
    assert every.json()["exact"] is True


@pytest.mark.parametrize("path", ["users", "audit"])
async def test_lists_of_people_refuse_a_scope(ground: Ground, path: str) -> None:
    assert (await ground.callers["admin"].get(f"/api/v1/{path}?filter=")).status == 403


async def test_a_user_with_a_scope_finds_only_own_sessions(ground: Ground) -> None:
    """Sessions have no labels: the scope neither hides the own ones nor shows others."""
    center = ground.center
    await center.admin.put("/api/v1/groups/limited", {"labels": ["team=a"]})
    anna = await logged_in(center, "anna", groups=["limited"])
    await logged_in(center, "bert")
    for wanted in ("", "user:anna", "-user:bert"):
        found = (await anna.call("GET", f"/api/v1/sessions?filter={wanted}")).json()
        assert {one["user"] for one in found["items"]} == {"anna"}, wanted
    found = (await anna.call("GET", "/api/v1/sessions?filter=user:bert")).json()
    assert (found["items"], found["count"]) == ([], 0)


async def test_lists_continue_without_a_filter(ground: Ground) -> None:
    """Older clients page by `after`; the list has one job of the caller."""
    found = (await ground.callers["viewer"].get("/api/v1/jobs?limit=1")).json()
    assert [one["job"]["name"] for one in found["items"]] == [INSIDE]
    assert found["next"] is None


async def test_an_agent_is_found_by_its_name_among_those_inside(ground: Ground) -> None:
    caller = ground.callers["admin"]
    by_name = (await caller.get("/api/v1/agents/same%20name")).json()
    assert by_name["agent"]["registration"]["id"] == INSIDE, "the other does not make it ambiguous"
    assert (await caller.post(f"/api/v1/agents/{INSIDE}/cordon")).status == 200
    assert (await caller.post(f"/api/v1/agents/{OUTSIDE}/cordon")).status == 404
    assert (await caller.post(f"/api/v1/agents/{INSIDE}/enable")).status == 200


# -- changes


async def test_new_objects_need_a_label_of_the_scope(ground: Ground) -> None:
    """Bad input: without it, the maker could not see what it has made."""
    caller = ground.callers["admin"]
    job: dict[str, Any] = {"requests": ["http://a.test/"]}
    for labels in ({}, {"team": "b"}, {"group": "a"}):
        for path, body in (("runs/new", {}), ("jobs/new", job)):
            refused = await caller.put(f"/api/v1/{path}", {**body, "labels": labels})
            assert (refused.status, "team=a" in refused.problem().detail) == (403, True)
    refused = await caller.post("/requestqueue/new/driver", {})
    assert refused.status == 403
    assert (await ground.center.admin.get("/api/v1/runs/new")).status == 404
    assert (await ground.center.admin.get("/api/v1/jobs/new")).status == 404
    mine = {"labels": {"team": "a"}}
    assert (await caller.put("/api/v1/runs/made", mine)).status == 200
    assert (await caller.put("/api/v1/jobs/made", {**job, **mine})).status == 200
    assert (await caller.get("/api/v1/jobs/made")).status == 200
    started = (await caller.post("/api/v1/jobs/made/run")).json()["run"]
    assert (await caller.get(f"/api/v1/runs/{started}")).status == 200


async def test_a_taken_name_is_refused_and_nothing_else_is_said(ground: Ground) -> None:
    caller, mine = ground.callers["admin"], {"labels": {"team": "a"}}
    before = await state_of(ground.center, ground.outside)
    for path, body in (
        (f"runs/{OUTSIDE}", mine),
        (f"jobs/{OUTSIDE}", {**mine, "requests": ["http://a.test/"]}),
        ("runs/other", {**mine, "job": OUTSIDE}),
    ):
        refused = await caller.put(f"/api/v1/{path}", body)
        assert (refused.status, "not available" in refused.problem().detail) == (409, True)
    assert await state_of(ground.center, ground.outside) == before


async def test_a_job_cannot_leave_the_scope_nor_follow_a_job_outside(ground: Ground) -> None:
    caller = ground.callers["admin"]
    job = {"requests": ["http://a.test/"], "labels": {"team": "a"}}
    path = f"/api/v1/jobs/{INSIDE}"
    assert (await caller.put(path, {**job, "labels": {"team": "b"}})).status == 403
    for after in (OUTSIDE, [OUTSIDE]):
        answer = await caller.put("/api/v1/jobs/late", {**job, "schedule": {"after": after}})
        ghost = await caller.put("/api/v1/jobs/late", {**job, "schedule": {"after": NOTHING}})
        assert (answer.status, ghost.status) == (404, 404)
        assert ground.ghostly(answer.problem().detail) == ghost.problem().detail
    labels = urlencode({"labels": '{"team": "b"}'})
    assert (await caller.post(f"/api/v1/jobs/{INSIDE}/run?{labels}")).status == 403


async def test_a_job_with_an_active_run_outside_is_not_paused(ground: Ground) -> None:
    admin, caller = ground.center.admin, ground.callers["admin"]
    job = {"requests": ["http://a.test/"], "labels": {"team": "a"}}
    await admin.put("/api/v1/jobs/shared", job)
    labels = urlencode({"labels": '{"team": "b"}'})
    run = (await admin.post(f"/api/v1/jobs/shared/run?{labels}")).json()["run"]
    seen = await caller.get("/api/v1/jobs/shared")
    assert (seen.status, run.encode() in seen.content) == (200, False)
    why = await caller.get("/api/v1/why/jobs/shared")
    assert (why.status, run.encode() in why.content) == (200, False)
    assert (await caller.post("/api/v1/jobs/shared/pause")).status == 403
    assert (await admin.get(f"/api/v1/runs/{run}")).json()["run"]["state"] == "running"
    assert (await admin.post("/api/v1/jobs/shared/stop")).status == 200


# -- operations


async def test_an_operation_counts_shows_and_changes_only_what_is_inside(ground: Ground) -> None:
    """R3: dry run, confirmation, effect, and what others see of it."""
    caller, before = ground.callers["admin"], await state_of(ground.center, ground.outside)
    asked = {"resource": "requests", "act": "cancel", "all": True}
    plan = (await caller.post("/api/v1/operations", asked)).json()["plan"]
    names = {one["text"] for one in plan["examples"]}
    assert names
    assert all(OUTSIDE not in one for one in names)
    wide = {**asked, "filter": "label:team=a,team=b"}
    assert (await caller.post("/api/v1/operations", wide)).json()["plan"]["matched"] == (
        plan["matched"]
    )
    start = {**asked, "filter": "uri:*/open", "dry_run": False}
    dry = {**asked, "filter": "uri:*/open"}
    confirm = (await caller.post("/api/v1/operations", dry)).json()["plan"]["confirm"]
    made = (await caller.post("/api/v1/operations", {**start, "confirm": confirm})).json()
    number = made["operation"]["id"]
    assert "label:team=a" in made["operation"]["filter"]
    await _ended(caller, number)
    assert await state_of(ground.center, ground.outside) == before
    states = (await caller.get(f"/api/v1/requests?filter=run:{INSIDE}")).json()["items"]
    assert "cancelled" in {one["state"] for one in states}
    other = await token(ground.center, "admin", "team=b")
    assert (await other.get(f"/api/v1/operations/{number}")).status == 404
    assert (await other.post(f"/api/v1/operations/{number}/cancel")).status == 404


async def _ended(caller: Caller, number: int) -> None:
    row = next(one for one in TABLE if one.route.id == "watch_events")
    query = urlencode({"watch": f"operation:{number}", "seconds": 0.2})
    while True:  # the time limit of the test ends it
        await ask(caller, row, {}, query)
        found = (await caller.get(f"/api/v1/operations/{number}")).json()
        if found["state"] not in {"waiting", "collecting", "working"}:
            assert found["state"] == "done"
            return


async def test_causes_of_failures_do_not_name_what_is_outside(ground: Ground) -> None:
    """A job that a job outside follows cannot be deleted, and neither way says by whom."""
    admin, caller = ground.center.admin, ground.callers["admin"]
    job: dict[str, Any] = {"requests": ["http://a.test/"]}
    await admin.put("/api/v1/jobs/first", {**job, "labels": {"team": "a"}})
    follower = {**job, "labels": {"team": "b"}, "schedule": {"after": ["first"]}}
    assert (await admin.put(f"/api/v1/jobs/{OUTSIDE}-2", follower)).status == 200
    refused = await caller.send("DELETE", "/api/v1/jobs/first")
    assert (refused.status, OUTSIDE.encode() in refused.content) == (409, False)
    asked = {"resource": "jobs", "act": "delete", "filter": "name:first"}
    confirm = (await caller.post("/api/v1/operations", asked)).json()["plan"]["confirm"]
    start = {**asked, "dry_run": False, "confirm": confirm}
    number = (await caller.post("/api/v1/operations", start)).json()["operation"]["id"]
    await _ended(caller, number)
    seen = await caller.get(f"/api/v1/operations/{number}")
    (result,) = seen.json()["results"]
    assert (result["outcome"], result["examples"]) == ("failed", ["first"])
    assert OUTSIDE.encode() not in seen.content
    cycle = {**job, "labels": {"team": "a"}, "schedule": {"after": ["second"]}}
    await admin.put("/api/v1/jobs/second", {**cycle, "schedule": {"after": [f"{OUTSIDE}-2"]}})
    answer = await caller.put("/api/v1/jobs/first", cycle)
    assert (answer.status, answer.problem().code) == (400, "invalid_job")
    assert "a cycle of jobs" in answer.problem().detail
    assert OUTSIDE not in answer.problem().detail


async def test_the_key_of_another_operation_gives_nothing_away(ground: Ground) -> None:
    asked = {"resource": "jobs", "act": "enable", "filter": f"name:{OUTSIDE}", "dry_run": False}
    await ground.center.admin.post("/api/v1/operations", {**asked, "key": "monday"})
    answer = await ground.callers["admin"].post("/api/v1/operations", {**asked, "key": "monday"})
    assert answer.status == 409
    assert OUTSIDE.encode() not in answer.content


@pytest.mark.parametrize("label", ['odd="', 'quoted=a"b', "x=a,b*", "x=a\\", "y= :c", "n=-a"])
async def test_any_label_of_a_scope_limits_an_operation(ground: Ground, label: str) -> None:
    """Bad input: signs that mean something in a filter, and a filter with an open quote."""
    caller = await token(ground.center, "admin", label)
    asked = {"resource": "runs", "act": "pause"}
    plan = (await caller.post("/api/v1/operations", {**asked, "all": True})).json()["plan"]
    assert (plan["matched"], plan["examples"]) == (0, [])
    for open_quote in ('"', 'id:"', '-"', "label:"):
        answer = await caller.post("/api/v1/operations", {**asked, "filter": open_quote})
        assert answer.status == 400, answer.content


async def test_bulk_calls_of_earlier_releases_are_limited_too(ground: Ground) -> None:
    caller, before = ground.callers["admin"], await state_of(ground.center, ground.outside)
    for path in ("requests/cancel", "failures/retry", "failures/cancel", "failures/forget"):
        for wanted in ({"run": OUTSIDE}, {"host": f"{OUTSIDE}.test"}):
            body = {"filter": wanted, "dry_run": False}
            answer = (await caller.post(f"/api/v1/{path}", body)).json()
            assert (answer["matched"], answer["examples"]) == (0, [])
        dry = (await caller.post(f"/api/v1/{path}", {"filter": {}, "all": True})).json()
        assert OUTSIDE not in str(dry)
    assert await state_of(ground.center, ground.outside) == before


# -- logs, figures, views


async def all_lines(caller: Caller) -> list[dict[str, str]]:
    """A call reads a bounded part and says where it goes on."""
    lines, cursor = [], ""
    while True:
        asks = urlencode({"limit": 500, "cursor": cursor})
        answer = (await caller.get(f"/api/v1/logs?{asks}")).json()
        lines += answer["lines"]
        if not (cursor := answer["cursor"]):
            return lines


async def test_log_lines_are_those_of_runs_and_agents_inside(ground: Ground) -> None:
    """R4: search, follow, context and download; never lines of centers."""
    viewer = ground.callers["viewer"]
    found = await all_lines(viewer)
    assert {(one["kind"], one["agent"]) for one in found} == {("app", INSIDE), ("agent", INSIDE)}
    new = (await viewer.get("/api/v1/logs/follow?position=0&wait=0")).json()["lines"]
    assert {one["agent"] for one in new} == {INSIDE}
    assert (await viewer.get("/api/v1/logs?filter=source:center")).json()["lines"] == []
    where = {"source": f"{OUTSIDE}/0", "kind": "app", "token": 1}
    for more in ({"run": OUTSIDE, "agent": OUTSIDE}, {"run": OUTSIDE, "agent": INSIDE}):
        answer = await viewer.get(f"/api/v1/logs/context?{urlencode({**where, **more})}")
        assert answer.json()["lines"] == []
    mine = {**where, "source": f"{INSIDE}/0", "run": INSIDE, "agent": INSIDE}
    answer = await viewer.get(f"/api/v1/logs/context?{urlencode(mine)}")
    assert [one["text"] for one in answer.json()["lines"]] == [f"a line of {INSIDE}"]


async def test_figures_are_those_of_a_run_inside(ground: Ground) -> None:
    viewer = ground.callers["viewer"]
    assert (await viewer.get("/api/v1/series?name=requests.done")).status == 403
    assert (await viewer.get("/api/v1/series?name=ledger")).status == 403
    assert (await viewer.get(f"/api/v1/series?name=latency&run={OUTSIDE}")).status == 404
    assert (await viewer.get(f"/api/v1/series?name=latency&run={INSIDE}")).status == 200


async def test_views_belong_to_one_caller(ground: Ground) -> None:
    """Shared views of others, and those of a token with the same name and role, can name what is
    outside."""
    one, other = [await token(ground.center, "operator", team) for team in ("team=a", "team=b")]
    view = {"resource": "runs", "filter": f"id:{OUTSIDE}", "shared": True}
    assert (await other.put("/api/v1/views/x", view)).status == 200
    assert (await one.get("/api/v1/views")).json()["items"] == []
    assert (await one.send("DELETE", "/api/v1/views/x")).status == 404
    assert [one["name"] for one in (await other.get("/api/v1/views")).json()["items"]] == ["x"]


# -- people


async def test_a_user_of_a_group_is_scoped_within_seconds(ground: Ground) -> None:
    center = ground.center
    await center.admin.put("/api/v1/groups/a", {"labels": ["team=a"]})
    page = await logged_in(center, "member", "operator", groups=["a"])
    assert len((await page.call("GET", "/api/v1/agents")).json()["items"]) == 1
    seen = [OUTSIDE.encode() in (await page.call("GET", "/api/v1/runs")).content]
    assert (await page.call("GET", "/api/v1/users")).status == 403
    await center.admin.put("/api/v1/groups/a", {"labels": ["team=a", "team=b"]})
    assert len((await page.call("GET", "/api/v1/agents")).json()["items"]) == 2
    seen.append(OUTSIDE.encode() in (await page.call("GET", "/api/v1/runs")).content)
    assert seen == [False, True]


@pytest.mark.parametrize("change", ["scope", "user", "groups"])
async def test_a_stream_ends_when_its_caller_may_see_something_else(
    ground: Ground, change: str
) -> None:
    """Issue 12: a scope that is changed or lifted, or a user who is disabled, under an open
    stream."""
    center, name = ground.center, f"watcher-{change}"
    await center.admin.put(f"/api/v1/groups/{name}", {"labels": ["team=a", "team=b"]})
    page = await logged_in(center, name, "operator", groups=[name])
    cookie = "; ".join(f"{key}={value}" for key, value in page.cookies.items())
    headers = {**page.headers, "Cookie": cookie}
    url = f"{center.url}/api/v1/events?watch=runs"
    async with center.anyone._session.get(url, headers=headers) as response:
        async for line in response.content:
            if line.startswith(b"event: page"):
                break
        if change == "scope":
            await center.admin.put(f"/api/v1/groups/{name}", {"labels": ["team=a"]})
        elif change == "groups":
            body = msgspec.json.encode({"groups": []})
            await center.admin.send("PATCH", f"/api/v1/users/{name}", body)
        else:
            body = msgspec.json.encode({"disabled": True})
            await center.admin.send("PATCH", f"/api/v1/users/{name}", body)
        rest = await response.content.read()
    assert b"event: end" in rest


async def test_an_admin_with_a_scope_ends_no_sessions_of_others(ground: Ground) -> None:
    center, caller = ground.center, ground.callers["admin"]
    await logged_in(center, "other")
    assert (await caller.get("/api/v1/sessions?user=other")).json()["items"] == []
    (session,) = (await center.admin.get("/api/v1/sessions?user=other")).json()["items"]
    assert (await caller.send("DELETE", f"/api/v1/sessions/{session['id']}")).status == 404
