"""Requests, one request with its archived answer, failures, data and archive. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.collected_data import answered, collected, failed, group_of
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user
from skep.testing.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = "<html><title>One</title><p>first <b>page</b> 采集<img src=http://evil.test/x alt=seen>"


async def state_of(center: RunningCenter, number: int) -> str:
    found = (await center.admin.get(f"/api/v1/requests/{number}")).json()
    return str(found["request"]["state"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "page-admin")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def number(center: RunningCenter) -> int:
    headers = [("Content-Type", "text/html; charset=utf-8"), ("Set-Cookie", "login=geheim")]
    return await answered(center, "kept", PAGE.encode(), headers, "http://a.test/first")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dead(center: RunningCenter) -> list[int]:
    uris = [f"http://gone.test/{n}" for n in range(3)]
    return await failed(center, "lost", uris, "no such host")


async def test_the_explorer_lists_what_the_api_lists(
    center: RunningCenter, admin: PortalUser, number: int, dead: list[int]
) -> None:
    text = Markup((await admin.open("/requests")).content).text
    assert "http://a.test/first" in text
    text = Markup((await admin.open("/requests?filter=state%3Adead")).content).text
    assert "http://a.test/first" not in text
    assert "3 found" in text
    wrong = await admin.open("/requests?filter=nothing%3A1")
    assert wrong.status == 200
    assert "filter-problem" in wrong.content.decode()


async def test_a_request_shows_its_attempts_and_why(
    admin: PortalUser, number: int, dead: list[int]
) -> None:
    text = Markup((await admin.open(f"/requests/{number}")).content).text
    assert "agent-kept" in text
    text = Markup((await admin.open(f"/requests/{dead[0]}")).content).text
    assert "no such host" in text


async def test_the_archived_answer_is_shown_as_text(admin: PortalUser, number: int) -> None:
    page = Markup((await admin.open(f"/requests/{number}?tab=answer")).content)
    assert PAGE in page.text
    assert "HTTP/1.1 200 OK" in page.text
    assert "login=geheim" in page.text
    assert page.found("img") == []
    links = {tag.get("href") for tag in page.found("a")}
    assert f"/api/v1/requests/{number}/body" in links


async def test_a_viewer_sees_no_secret_headers(center: RunningCenter, number: int) -> None:
    person = await portal_user(center, "looks-at-heads", "viewer")
    text = Markup((await person.open(f"/requests/{number}?tab=answer")).content).text
    assert "Set-Cookie" in text
    assert "geheim" not in text


async def test_the_frame_runs_and_loads_nothing(admin: PortalUser, number: int) -> None:
    page = Markup((await admin.open(f"/requests/{number}?tab=page")).content)
    (frame,) = page.found("iframe")
    assert frame["sandbox"] == ""
    assert frame["src"] == f"/requests/{number}/page"
    answer = await admin.open(frame["src"])
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "allow" not in policy
    assert "unsafe" not in policy
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    shown = Markup(answer.content)
    assert "first page 采集[seen]" in shown.text
    assert shown.found("img") == []
    download = await admin.open(f"/api/v1/requests/{number}/body")
    assert download.headers["Content-Disposition"].startswith("attachment")
    assert download.content == PAGE.encode()


async def test_a_request_without_an_answer_says_so(admin: PortalUser, dead: list[int]) -> None:
    for tab in ("answer", "page"):
        answer = await admin.open(f"/requests/{dead[0]}?tab={tab}")
        assert answer.status == 200
        assert "No answer is archived" in Markup(answer.content).text
    assert (await admin.open(f"/requests/{dead[0]}/page")).status == 404


@pytest.mark.parametrize("path", ["/requests/99999999", "/requests/x", "/requests/-1"])
async def test_an_unknown_request_is_a_404_page(admin: PortalUser, path: str) -> None:
    answer = await admin.open(path)
    assert answer.status == 404
    assert len(Markup(answer.content).found("h1")) == 1


async def test_a_dead_request_is_retried(center: RunningCenter, admin: PortalUser) -> None:
    (one,) = await failed(center, "again", ["http://gone.test/again"], "no such host")
    page = Markup((await admin.open(f"/requests/{one}")).content)
    assert f"/requests/{one}/retry" in {tag.get("action") for tag in page.found("form")}
    answer = await admin.submit(f"/requests/{one}/retry")
    assert (answer.status, answer.headers["Location"]) == (303, f"/requests/{one}")

    async def retried() -> bool:
        return await state_of(center, one) != "dead"

    await until(retried)


async def test_an_open_request_is_cancelled(center: RunningCenter, admin: PortalUser) -> None:
    await center.open_run("stopped")
    await center.admin.post("/api/v1/runs/stopped/pause")
    await center.put("stopped", ["http://a.test/stopped"])
    found = (await center.admin.get("/api/v1/requests?filter=run:stopped")).json()
    one = found["items"][0]["id"]
    page = Markup((await admin.open(f"/requests/{one}")).content)
    assert f"/requests/{one}/cancel" in {tag.get("action") for tag in page.found("form")}
    assert (await admin.submit(f"/requests/{one}/cancel")).status == 303

    async def cancelled() -> bool:
        return await state_of(center, one) == "cancelled"

    await until(cancelled)
    assert (await admin.submit(f"/requests/{one}/explode")).status == 400


async def test_a_viewer_cannot_act_on_requests(center: RunningCenter, dead: list[int]) -> None:
    person = await portal_user(center, "request-viewer", "viewer")
    for path in ("/requests", f"/requests/{dead[0]}"):
        page = Markup((await person.open(path)).content)
        actions = {tag.get("action", "") for tag in page.found("form")}
        assert not {one for one in actions if one.startswith("/requests/")}
        assert "bulk-bar" not in {tag.get("class") for tag in page.found("div")}
    assert (await person.submit(f"/requests/{dead[0]}/retry")).status == 403
    assert await state_of(center, dead[0]) == "dead"


async def test_selected_requests_are_retried_in_bulk(
    center: RunningCenter, admin: PortalUser
) -> None:
    (one,) = await failed(center, "bulk", ["http://gone.test/bulk"], "no such host")
    page = Markup((await admin.open("/requests?filter=run%3Abulk")).content)
    acts = {tag.get("value") for tag in page.found("button") if tag.get("name") == "act"}
    assert {"retry", "cancel"} <= acts
    plan = await admin.submit(
        "/bulk", resource="requests", act="retry", field="id", scope="selected", key=str(one)
    )
    assert "1 match" in Markup(plan.content).text
    assert await state_of(center, one) == "dead"


async def test_failures_are_listed_by_group(
    center: RunningCenter, admin: PortalUser, dead: list[int]
) -> None:
    name = await group_of(center, "gone.test")
    page = Markup((await admin.open("/failures")).content)
    assert f"/failures/{quote(name, safe='')}" in {tag.get("href") for tag in page.found("a")}
    other = Markup((await admin.open("/failures?state=ignored")).content).text
    assert "gone.test" not in other
    none = await admin.open("/failures?host=nowhere.test")
    assert "Nothing matches" in Markup(none.content).text


async def test_a_group_shows_its_trend_and_its_requests(
    center: RunningCenter, admin: PortalUser, dead: list[int]
) -> None:
    name = await group_of(center, "gone.test")
    page = Markup((await admin.open(f"/failures/{quote(name, safe='')}")).content)
    assert len(page.found("figure")) == 2
    assert f"/requests/{dead[0]}" in {tag.get("href") for tag in page.found("a")}
    assert "no such host" in page.text


async def test_a_group_is_resolved_ignored_and_reopened(
    center: RunningCenter, admin: PortalUser
) -> None:
    await failed(center, "closing", ["http://closing.test/1"], "no such host")
    name = await group_of(center, "closing.test")
    path = f"/failures/{quote(name, safe='')}"
    for verb, state in (("ignore", "ignored"), ("resolve", "resolved"), ("reopen", "open")):
        answer = await admin.submit(path, verb=verb, note=f"<b>{verb}")
        assert (answer.status, answer.headers["Location"]) == (303, path)
        kept = (await center.admin.get(f"/api/v1/failure-groups/{quote(name)}")).json()["group"]
        assert (kept["state"], kept["note"]) == (state, f"<b>{verb}")
    assert (await admin.submit(path, verb="explode")).status == 400
    assert (await admin.submit(path, verb="ignore", note="x" * 501)).status == 400
    person = await portal_user(center, "group-viewer", "viewer")
    shown = Markup((await person.open(path)).content)
    assert path not in {tag.get("action") for tag in shown.found("form")}
    assert (await person.submit(path, verb="ignore")).status == 403
    kept = (await center.admin.get(f"/api/v1/failure-groups/{quote(name)}")).json()["group"]
    assert kept["state"] == "open"


async def test_a_group_is_retried_after_its_plan(center: RunningCenter, admin: PortalUser) -> None:
    (one,) = await failed(center, "repeat", ["http://repeat.test/1"], "no such host")
    name = await group_of(center, "repeat.test")
    page = Markup((await admin.open(f"/failures/{quote(name, safe='')}")).content)
    hidden = [tag for tag in page.found("input") if tag.get("type") == "hidden"]
    fields = {tag["name"]: tag["value"] for tag in hidden if tag["name"] != "next"}
    plan = Markup((await admin.submit("/bulk", **fields, act="retry")).content)
    assert "1 match" in plan.text
    wanted = ("resource", "act", "filter", "everything", "confirm", "key")
    asked = {tag["name"]: tag.get("value", "") for tag in plan.found("input") if "name" in tag}
    assert await state_of(center, one) == "dead"
    assert (await admin.submit("/bulk/start", **{key: asked[key] for key in wanted})).status == 303

    async def retried() -> bool:
        return await state_of(center, one) != "dead"

    await until(retried)


@pytest.mark.parametrize("path", ["/failures/nothing", "/failures/0a1b2c3d4e5f%40a.test"])
async def test_an_unknown_group_is_a_404_page(admin: PortalUser, path: str) -> None:
    assert (await admin.open(path)).status == 404


async def test_items_are_searched_and_columns_chosen(
    center: RunningCenter, admin: PortalUser
) -> None:
    items: list[dict[str, object]] = [
        {"title": f"book {at}", "price": at, "tags": ["a"]} for at in range(120)
    ]
    await collected(center, "books", items)
    assert "/data/books" in {
        tag.get("href") for tag in Markup((await admin.open("/data")).content).found("a")
    }
    page = Markup((await admin.open("/data/books")).content)
    assert "book 49" in page.text
    assert "book 50" not in page.text
    following = [tag["href"] for tag in page.found("a") if tag.get("rel") == "next"]
    assert "book 99" in Markup((await admin.open(following[0])).content).text
    found = Markup((await admin.open("/data/books?search=BOOK+11&column=price")).content)
    assert "11 found among 120 items" in found.text
    assert "book 11" not in found.text
    assert "Search on" not in found.text
    none = Markup((await admin.open("/data/books?search=nowhere")).content)
    assert "0 found among 120 items" in none.text


async def test_items_are_exported_with_formulas_escaped(
    center: RunningCenter, admin: PortalUser
) -> None:
    await collected(center, "sums", [{"a": "=1+1", "b": -1}, {"a": "x,y", "c": "采"}])
    page = Markup((await admin.open("/data/sums?column=a")).content)
    links = [tag["href"] for tag in page.found("a") if "/export" in tag.get("href", "")]
    lines, table, chosen = [await admin.open(link) for link in links]
    assert lines.content.decode() == '{"a":"=1+1","b":-1}\n{"a":"x,y","c":"采"}\n'
    assert table.content.decode() == 'a,b,c\r\n\'=1+1,-1,\r\n"x,y",,采\r\n'
    assert chosen.content.decode() == 'a\r\n\'=1+1\r\n"x,y"\r\n'
    for answer in (lines, table, chosen):
        assert answer.headers["Content-Disposition"].startswith("attachment")
    assert (await center.admin.get("/api/v1/runs/nobody/items/export")).status == 404
    assert (await center.admin.get("/api/v1/runs/sums/items/export?format=xml")).status == 400


async def test_a_run_without_items_and_an_unknown_run(
    center: RunningCenter, admin: PortalUser
) -> None:
    await center.open_run("bare")
    assert "no items" in Markup((await admin.open("/data/bare")).content).text
    empty = await admin.open("/api/v1/runs/bare/items/export?format=csv")
    assert (empty.status, empty.content) == (200, b"")
    assert (await admin.open("/data/nobody")).status == 404


async def test_the_archive_shows_what_the_api_says(
    center: RunningCenter, admin: PortalUser, number: int
) -> None:
    storage = (await center.admin.get("/api/v1/storage")).json()
    page = Markup((await admin.open("/archive")).content)
    assert storage["archive"] in page.text
    assert storage["disks"][0]["folder"][-20:] in page.text
    assert "/archive/clean" in {tag.get("action") for tag in page.found("form")}
    answer = await admin.submit("/archive/clean")
    assert (answer.status, answer.headers["Location"]) == (303, "/archive")


async def test_only_admins_clean_the_archive(center: RunningCenter) -> None:
    for role in ("viewer", "operator"):
        person = await portal_user(center, f"cleans-{role}", role)
        page = await person.open("/archive")
        assert page.status == 200
        actions = {tag.get("action") for tag in Markup(page.content).found("form")}
        assert "/archive/clean" not in actions
        assert (await person.submit("/archive/clean")).status == 403
