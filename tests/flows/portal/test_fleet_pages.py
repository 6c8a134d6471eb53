"""Lanes, hosts and placement: pages of a real center. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    """A run that is done, one that waits behind a full lane, and two agents."""
    folder = tmp_path_factory.mktemp("center")
    async with running_center(folder, lanes_super_limit=4) as running:
        await running.archive_pages(3, "shown")
        second = running.hand_agent("a2")
        await second.register()
        await second.heartbeat()
        await running.open_run("jammed", block_size=2, priority=-1)
        await running.put(
            "jammed", [{"uri": f"http://b.test/{n}", "priority": -1} for n in range(9)]
        )
        await running.dispatched()
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "lanes-admin")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "lanes-viewer", "viewer")


async def _text(person: PortalUser, path: str, status: int = 200) -> str:
    answer = await person.open(path)
    assert answer.status == status, answer.content
    return Markup(answer.content).text


async def test_lanes_show_depth_limit_and_the_log(center: RunningCenter, admin: PortalUser) -> None:
    text = await _text(admin, "/lanes")
    lanes = (await center.admin.get("/api/v1/lanes")).json()["items"]
    for lane in lanes:
        assert f"{lane['lane']}" in text
        assert f"{lane['limit']:,}" in text
    assert "shown" in text
    assert "dispatched" in text


async def test_the_dispatch_log_is_filtered(admin: PortalUser) -> None:
    text = await _text(admin, "/lanes?filter=run%3Anobody")
    assert "Nothing matches the filter." in text
    assert "statte" in await _text(admin, "/lanes?filter=statte%3A1")


async def test_a_round_is_dispatched_by_hand(
    center: RunningCenter, admin: PortalUser, viewer: PortalUser
) -> None:
    assert (await admin.submit("/lanes/dispatch")).headers["Location"] == "/lanes"
    assert "went into the lanes." in await _text(admin, "/lanes")
    page = Markup((await viewer.open("/lanes")).content)
    assert "/lanes/dispatch" not in {tag.get("action") for tag in page.found("form")}
    assert (await viewer.submit("/lanes/dispatch")).status == 403


async def test_hosts_are_listed_with_their_results(admin: PortalUser) -> None:
    text = await _text(admin, "/hosts")
    assert "a.test" in text
    assert "a.test" not in (await _text(admin, "/hosts?filter=failed%3A%3E0")).replace(
        "a.test/", ""
    )


async def test_a_rule_is_set_and_cleared(center: RunningCenter, admin: PortalUser) -> None:
    answer = await admin.submit("/hosts/a.test/rule", rate="0.5", concurrency="2", robots="no")
    assert (answer.status, answer.headers["Location"]) == (303, "/hosts/a.test")
    kept = (await center.admin.get("/api/v1/sites/a.test")).json()
    assert kept["rule"] == {"rate": 0.5, "concurrency": 2, "robots": False}
    page = Markup((await admin.open("/hosts/a.test")).content)
    values = {tag.get("name"): tag.get("value") for tag in page.found("input")}
    assert (values["rate"], values["concurrency"]) == ("0.5", "2")
    assert "0.5/s" in page.text
    await admin.submit("/hosts/a.test/rule", rate="0.5")
    kept = (await center.admin.get("/api/v1/sites/a.test")).json()
    assert kept["rule"] == {"rate": 0.5, "concurrency": None, "robots": None}, "empty = default"
    assert (await admin.submit("/hosts/a.test/clear")).status == 303
    assert (await center.admin.get("/api/v1/sites/a.test")).json()["rule"]["rate"] is None


async def test_a_rule_for_a_host_that_was_never_contacted(
    center: RunningCenter, admin: PortalUser
) -> None:
    answer = await admin.submit("/hosts", host="New.Test", rate="1")
    assert answer.headers["Location"] == "/hosts/new.test"
    assert "new.test" in await _text(admin, "/hosts")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/hosts/b.test/rule", {"rate": "-1"}),
        ("/hosts/b.test/rule", {"rate": "fast"}),
        ("/hosts/b.test/rule", {"concurrency": "0"}),
        ("/hosts/b.test/rule", {"robots": "maybe"}),
        ("/hosts", {"host": "", "rate": "1"}),
        ("/hosts", {"host": "http://x.test/", "rate": "1"}),
    ],
)
async def test_a_wrong_rule_changes_nothing(
    center: RunningCenter, admin: PortalUser, path: str, fields: dict[str, str]
) -> None:
    before = (await center.admin.get("/api/v1/sites")).content
    assert (await admin.submit(path, **fields)).status in {400, 404}
    after = (await center.admin.get("/api/v1/sites")).content
    assert b'"rate":-1' not in after
    assert before.count(b'"host"') == after.count(b'"host"')


async def test_a_viewer_cannot_change_hosts(center: RunningCenter, viewer: PortalUser) -> None:
    page = Markup((await viewer.open("/hosts/a.test")).content)
    actions = {tag.get("action", "") for tag in page.found("form")}
    assert not [one for one in actions if one.startswith("/hosts")]
    assert (await viewer.submit("/hosts/a.test/rule", rate="9")).status == 403
    assert (await viewer.submit("/hosts/a.test/clear")).status == 403
    assert (await center.admin.get("/api/v1/sites/a.test")).json()["rule"]["rate"] is None


@pytest.mark.parametrize("path", ["/hosts/never.test", "/hosts/%3Cb%3E"])
async def test_an_unknown_host_is_a_page(admin: PortalUser, path: str) -> None:
    answer = await admin.open(path)
    assert answer.status in {400, 404}
    assert Markup(answer.content).found("h1")


async def test_placement_shows_who_takes_what_now(center: RunningCenter, admin: PortalUser) -> None:
    for name in ("a1", "a2"):
        await center.hand_agent(name).register()
        await center.hand_agent(name).heartbeat()
    page = Markup((await admin.open("/placement")).content)
    assert "Who takes what" in page.text
    rows = {tag.get("data-key") for tag in page.found("tr")}
    assert {"a1", "a2"} <= rows


async def test_a_preview_says_what_moves(center: RunningCenter, admin: PortalUser) -> None:
    text = await _text(admin, "/placement?remove=a2&add=a3")
    wanted = (await center.admin.get("/api/v1/placement/preview?remove=a2&add=a3")).json()["hashed"]
    assert f"{wanted['moved']:,} / {wanted['keys']:,}" in text
    assert "a3" in text
    assert "skep placement preview --remove a2 --add a3" in text


async def test_a_run_shows_who_may_work_for_it(admin: PortalUser) -> None:
    text = await _text(admin, "/placement?run=shown")
    assert "Who may work for it" in text
    assert "any" in text


@pytest.mark.parametrize(
    ("query", "problem"),
    [("remove=nobody", "nobody"), ("run=nothing", "nothing"), ("add=a3&run=shown", "hashed")],
)
async def test_a_wrong_preview_says_why(admin: PortalUser, query: str, problem: str) -> None:
    page = Markup((await admin.open(f"/placement?{query}")).content)
    assert "alert" in {tag.get("role") for tag in page.found("p")}
    assert problem in page.text
