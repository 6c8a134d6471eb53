"""Pages of a real center, as a browser without scripts sees them. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from skep.portal.registry import pages
from skep.testing.grounds.browsers import add_user
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Lists are taken from the registry; pages of one object are named here.
PAGES = (
    *(page.path for page in pages() if page.nav is not None),
    "/overview?range=7d",
    "/runs?filter=state%3Arunning",
    "/runs/shown",
    "/runs/shown?tab=charts",
    "/runs/shown?tab=settings",
    "/runs/shown?tab=log",
    "/alerts/rules",
    "/alerts/rules/failure_rate",
    "/settings/groups",
    "/settings/tokens",
    "/settings/hosts",
    "/settings/notices",
    "/settings/retention",
    "/system/storage",
    "/system/audit",
    "/agents/a1",
    "/agents/a1?tab=charts",
    "/agents/a1?tab=log",
    "/add-agent",
    "/hosts/a.test",
    "/placement?run=shown",
    "/requests/1",
    "/requests/1?tab=answer",
    "/requests/1?tab=page",
    "/data/shown",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        await running.archive_pages(3, "shown")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "page-admin")


async def test_the_root_leads_browsers_to_the_portal_and_programs_nowhere_new(
    center: RunningCenter,
) -> None:
    answer = await PortalUser(center.anyone).open("/")
    assert (answer.status, answer.headers["Location"]) == (302, "/overview")
    assert (await center.anyone.get("/")).problem().code == "not_found"


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_page_is_shown_in_each_language(
    center: RunningCenter, admin: PortalUser, path: str, language: str
) -> None:
    """Reading needs no scripts: everything is in the answer."""
    answer = await admin.open(path, **{"Accept-Language": language})
    assert answer.status == 200, answer.content
    markup = Markup(answer.content)
    assert markup.found("html") == [{"lang": language, "data-theme": "auto"}]
    assert len(markup.found("h1")) == 1
    assert "data-key" in {name for tag in markup.found("a") for name in tag}
    assert b"Traceback" not in answer.content


@pytest.mark.parametrize("path", [*PAGES, "/login", "/nothing/here", "/assets/portal.css"])
async def test_every_answer_keeps_other_sites_out(admin: PortalUser, path: str) -> None:
    headers = (await admin.open(path)).headers
    policy = headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


async def test_without_login_a_page_leads_to_the_login_and_back(center: RunningCenter) -> None:
    await add_user(center, "comes-back", "viewer")
    person = PortalUser(center.anyone)
    answer = await person.open("/runs?filter=state:failed")
    assert answer.status == 303
    assert answer.headers["Location"] == "/login?next=%2Fruns%3Ffilter%3Dstate%3Afailed"
    page = await person.open(answer.headers["Location"])
    hidden = [tag for tag in Markup(page.content).found("input") if tag.get("name") == "next"]
    back = hidden[-1]["value"]
    done = await person.submit(
        "/login", user="comes-back", password="correct horse battery", next=back
    )
    assert (done.status, done.headers["Location"]) == (303, "/runs?filter=state:failed")
    assert (await person.open(back)).status == 200


async def test_a_login_leads_to_no_other_site(center: RunningCenter) -> None:
    await add_user(center, "followed", "viewer")
    for hostile in ("https://evil.test/", "//evil.test/", "/\\evil.test", "/%0d%0aX: y\r\n"):
        person = PortalUser(center.anyone)
        answer = await person.submit(
            "/login", user="followed", password="correct horse battery", next=hostile
        )
        assert answer.headers["Location"] == "/overview", hostile


async def test_a_wrong_password_says_so_and_keeps_the_name(center: RunningCenter) -> None:
    answer = await PortalUser(center.anyone).submit("/login", user="<b>nobody", password="wrong")
    assert answer.status == 401
    assert b"is wrong" in answer.content
    assert b"<b>nobody" not in answer.content
    assert b"&lt;b&gt;nobody" in answer.content


async def test_a_login_link_works_once(center: RunningCenter) -> None:
    await add_user(center, "linked", "viewer")
    made = (await center.admin.post("/api/v1/users/linked/link")).json()
    person = PortalUser(center.anyone)
    assert (await person.submit("/login", link=made["url"])).status == 303
    assert (await person.open("/overview")).status == 200
    assert (await PortalUser(center.anyone).submit("/login", link=made["link"])).status == 401


async def test_log_out_ends_the_session(center: RunningCenter) -> None:
    person = await portal_user(center, "leaves")
    kept = dict(person.cookies)
    assert (await person.submit("/logout")).headers["Location"] == "/login"
    person.cookies = kept
    assert (await person.open("/overview")).status == 303


async def test_a_session_that_ended_under_an_open_page_is_told_to_its_module(
    center: RunningCenter,
) -> None:
    person = PortalUser(center.anyone)
    answer = await person.open("/overview", **{"X-Skep-Fragment": "1"})
    assert answer.status == 401
    assert msgspec.json.decode(answer.content)["login"] is True


@pytest.mark.parametrize(
    "changed",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "", "Origin": ""},
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
    ],
)
async def test_a_form_from_elsewhere_changes_nothing(
    center: RunningCenter, changed: dict[str, str]
) -> None:
    name = "".join(letter for letter in str(changed) if letter.isalnum())
    person = await portal_user(center, f"forged{name}"[:40].lower())
    person.headers = {key: value for key, value in {**person.headers, **changed}.items() if value}
    assert (await person.submit("/runs/shown/pause")).status == 403
    assert (await center.admin.get("/api/v1/runs/shown")).json()["run"]["state"] != "paused"


async def test_an_act_of_a_run_changes_it(center: RunningCenter, admin: PortalUser) -> None:
    await center.open_run("acted")
    await center.put("acted", ["http://a.test/1"])
    answer = await admin.submit("/runs/acted/pause")
    assert (answer.status, answer.headers["Location"]) == (303, "/runs/acted")
    page = await admin.open("/runs/acted")
    assert "The run is paused now." in Markup(page.content).text
    assert "The run is paused now." not in Markup((await admin.open("/runs/acted")).content).text
    assert (await center.admin.get("/api/v1/runs/acted")).json()["run"]["state"] == "paused"
    actions = {tag.get("action") for tag in Markup(page.content).found("form")}
    assert "/runs/acted/continue" in actions
    assert "/runs/acted/pause" not in actions


async def test_a_viewer_sees_no_acts_and_cannot_act(center: RunningCenter) -> None:
    await center.open_run("guarded")
    person = await portal_user(center, "only-looks", "viewer")
    page = Markup((await person.open("/runs/guarded")).content)
    assert not [
        tag for tag in page.found("form") if tag.get("action", "").startswith("/runs/guarded/")
    ]
    answer = await person.submit("/runs/guarded/cancel")
    assert answer.status == 403
    assert "viewer" in Markup(answer.content).text
    assert (await center.admin.get("/api/v1/runs/guarded")).json()["run"]["state"] == "running"


async def test_a_bulk_act_shows_its_plan_before_it_changes_anything(
    center: RunningCenter, admin: PortalUser
) -> None:
    for name in ("many-1", "many-2"):
        await center.open_run(name)
    chosen = {"resource": "runs", "act": "cancel", "field": "id", "scope": "all"}
    plan = await admin.submit("/bulk", **chosen, filter="id:many-*")
    fields = {
        tag["name"]: tag.get("value", "")
        for tag in Markup(plan.content).found("input")
        if "name" in tag
    }
    assert "2 match" in Markup(plan.content).text
    assert (await center.admin.get("/api/v1/runs/many-1")).json()["run"]["state"] == "running"
    wanted = ("resource", "act", "filter", "everything", "confirm", "key")
    started = await admin.submit("/bulk/start", **{name: fields[name] for name in wanted})
    again = await admin.submit("/bulk/start", **{name: fields[name] for name in wanted})
    assert started.status == 303
    assert again.headers["Location"] == started.headers["Location"], "a second click starts nothing"
    assert (await admin.open(started.headers["Location"])).status == 200


async def test_a_bulk_act_on_nothing_is_refused(admin: PortalUser) -> None:
    answer = await admin.submit("/bulk", resource="runs", act="cancel", scope="selected")
    assert answer.status == 400
    assert "Select at least one row." in Markup(answer.content).text


async def test_a_wrong_filter_says_what_is_wrong(admin: PortalUser) -> None:
    answer = await admin.open("/runs?filter=statte%3Afailed")
    assert answer.status == 200
    assert "statte" in Markup(answer.content).text
    assert "filter-problem" in {tag.get("id") for tag in Markup(answer.content).found("p")}


@pytest.mark.parametrize("path", ["/runs/gone", "/operations/999", "/operations/x", "/nothing"])
async def test_a_link_to_nothing_is_a_page(admin: PortalUser, path: str) -> None:
    answer = await admin.open(path)
    assert answer.status == 404
    assert Markup(answer.content).found("h1")


async def test_programs_get_problems_and_no_pages(center: RunningCenter) -> None:
    assert (await center.admin.get("/nothing")).problem().code == "not_found"
    answer = await PortalUser(center.anyone).open("/api/v1/nothing")
    assert answer.problem().code == "not_found"


async def test_assets_are_kept_for_a_year_under_their_hash(admin: PortalUser) -> None:
    page = Markup((await admin.open("/overview")).content)
    style = next(tag["href"] for tag in page.found("link") if tag["rel"] == "stylesheet")
    answer = await admin.open(style)
    assert "immutable" in answer.headers["Cache-Control"]
    older = await admin.open("/assets/portal.0123456789ab.css")
    assert older.status == 200
    assert older.headers["Cache-Control"] == "no-cache"
    for hostile in ("..%2f..%2fpage.py", "portal.py", "x.css"):
        assert (await admin.open(f"/assets/{hostile}")).status == 404


async def test_completion_and_search_answer_a_module(admin: PortalUser) -> None:
    found = (await admin.open("/complete?resource=runs&text=sta&at=3")).json()["items"]
    assert "state:" in [one["text"] for one in found]
    assert (await admin.open("/complete?resource=none&text=&at=0")).json() == {"items": []}
    items = (await admin.open("/find?text=show")).json()["items"]
    assert {"kind": "runs", "text": "shown", "url": "/runs/shown", "note": "running"} in items
    assert (await admin.open("/find?text=%22%3Cscript%3E*")).status == 200


async def test_names_are_completed_from_the_api(admin: PortalUser) -> None:
    for text, resource, name in (("id:sho", "runs", "shown"), ("run:sho", "requests", "shown")):
        asked = f"/complete?resource={resource}&text={text}&at={len(text)}"
        found = (await admin.open(asked)).json()["items"]
        assert name in [one["text"] for one in found], text


async def test_a_filter_is_saved_as_a_view(admin: PortalUser) -> None:
    fields = {"resource": "runs", "filter": "state:failed", "name": "broken-runs", "next": "/runs"}
    assert (await admin.submit("/views", **fields)).status == 303
    page = Markup((await admin.open("/runs")).content)
    assert "/runs?filter=state%3Afailed" in [tag["href"] for tag in page.found("a")]
    assert "broken-runs" in page.text
    assert (await admin.submit("/views", **{**fields, "name": "<b>"})).status == 400


async def test_the_side_bar_counts(center: RunningCenter, admin: PortalUser) -> None:
    counts = (await admin.open("/counts")).json()
    assert int(counts["runs"]["text"]) >= 1
    limited = await portal_user(center, "counts-little", "viewer")
    assert (await limited.open("/counts")).status == 200


async def test_the_switches_set_a_cookie(admin: PortalUser, center: RunningCenter) -> None:
    person = await portal_user(center, "switches")
    await person.submit("/preferences", language="zh", next="/runs")
    await person.submit("/preferences", theme="dark", next="/runs")
    html = Markup((await person.open("/runs")).content).found("html")
    assert html == [{"lang": "zh", "data-theme": "dark"}]
    await person.submit("/preferences", theme="pink", next="//evil.test")
    assert person.cookies["skep_theme"] == "dark"


async def test_a_form_that_is_too_large_is_refused(admin: PortalUser) -> None:
    answer = await admin.submit("/runs/shown/pause", extra="x" * (2 * 2**20))
    assert answer.status == 413


async def test_below_a_prefix_every_link_has_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("prefixed")
    async with running_center(folder, center_public_url="https://example.org/skep") as center:
        page = Markup(
            (
                await center.admin.send("GET", "/overview", None, {"Accept-Encoding": "identity"})
            ).content
        )
        links = [tag["href"] for tag in [*page.found("a"), *page.found("link")]]
        forms = [tag["action"] for tag in page.found("form") if "action" in tag]
        outside = [one for one in (*links, *forms) if not one.startswith(("/skep/", "#"))]
        assert outside == []
        for root in ("/skep", "/skep/", "/"):
            answer = await PortalUser(center.anyone).open(root)
            assert (answer.status, answer.headers["Location"]) == (302, "/skep/overview"), root
        login = await PortalUser(center.anyone).open("/overview")
        assert login.headers["Location"].startswith("/skep/login")
