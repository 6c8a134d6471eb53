"""Settings in the portal: users, groups, tokens, host rules, notices and retention. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from skep.testing.grounds.browsers import PASSWORD
from skep.testing.grounds.centers import Caller, RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = '"><img src=x onerror=alert(1)>'
TABS = (
    "/settings",
    "/settings/groups",
    "/settings/tokens",
    "/settings/hosts",
    "/settings/notices",
    "/settings/retention",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        await running.archive_pages(2, "shown")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "rules")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "looks", "viewer")


async def _user(center: RunningCenter, name: str) -> dict[str, object]:
    found: dict[str, object] = (await center.admin.get(f"/api/v1/users/{name}")).json()
    return found


def _secret(content: bytes) -> str:
    return next(tag["data-copy"] for tag in Markup(content).found("button") if "data-copy" in tag)


@pytest.mark.parametrize("path", TABS)
async def test_a_viewer_sees_each_tab_and_no_secrets(viewer: PortalUser, path: str) -> None:
    """A part that the role does not allow says so; the tabs still lead on."""
    answer = await viewer.open(path)
    assert answer.status == 200
    page = Markup(answer.content)
    assert set(TABS) <= {tag.get("href") for tag in page.found("a")}
    actions = {tag.get("action", "") for tag in page.found("form")}
    assert not [one for one in actions if one.startswith("/settings") and one != path]
    posts = [tag for tag in page.found("form") if tag.get("method") == "post"]
    assert not [tag for tag in posts if tag.get("action", "").startswith("/settings")]


async def test_a_viewer_cannot_change_settings(center: RunningCenter, viewer: PortalUser) -> None:
    users = (await center.admin.get("/api/v1/users")).json()
    for path, fields in (
        ("/settings/users", {"name": "mine", "role": "admin"}),
        ("/settings/users/looks", {"role": "admin"}),
        ("/settings/users/rules/disable", {}),
        ("/settings/users/rules/link", {}),
        ("/settings/groups", {"name": "g", "labels": "team=a"}),
        ("/settings/tokens", {"role": "admin"}),
        ("/settings/hosts", {"host": "c.test", "rate": "1"}),
        ("/settings/retention/clean", {}),
    ):
        assert (await viewer.submit(path, **fields)).status == 403, path
    after = (await center.admin.get("/api/v1/users")).json()
    assert [one["role"] for one in after["items"]] == [one["role"] for one in users["items"]]


async def test_a_user_is_added_changed_disabled_and_deleted(
    center: RunningCenter, admin: PortalUser
) -> None:
    await admin.submit("/settings/groups", name="berlin", labels="site=berlin, team=a")
    fields = {"name": "anna", "role": "operator", "password": PASSWORD, "group": "berlin"}
    made = await admin.submit("/settings/users", **fields)
    assert (made.status, made.headers["Location"]) == (303, "/settings/users/anna")
    found = await _user(center, "anna")
    assert (found["role"], found["groups"]) == ("operator", ["berlin"])
    assert "anna" in Markup((await admin.open("/settings")).content).text
    await admin.submit("/settings/users/anna", role="viewer")
    found = await _user(center, "anna")
    assert (found["role"], found["groups"]) == ("viewer", [])
    await admin.submit("/settings/users/anna/disable")
    assert (await _user(center, "anna"))["disabled"] is True
    assert (await PortalUser(center.anyone).log_in("anna")).status == 401
    await admin.submit("/settings/users/anna/enable")
    person = PortalUser(center.anyone)
    assert (await person.log_in("anna")).status == 303
    await admin.submit("/settings/users/anna/logout")
    assert (await person.open("/overview")).status == 303
    gone = await admin.submit("/settings/users/anna/delete")
    assert gone.headers["Location"] == "/settings"
    assert (await admin.open("/settings/users/anna")).status == 404


async def test_a_login_link_is_shown_once_and_works(
    center: RunningCenter, admin: PortalUser
) -> None:
    await admin.submit("/settings/users", name="linked", role="viewer")
    answer = await admin.submit("/settings/users/linked/link")
    assert answer.status == 200
    link = _secret(answer.content)
    secret = link.partition("#")[2].encode()
    assert secret
    for path in ("/settings", "/settings/users/linked"):
        assert secret not in (await admin.open(path)).content
    assert (await PortalUser(center.anyone).submit("/login", link=link)).status == 303


async def test_wrong_users_change_nothing(center: RunningCenter, admin: PortalUser) -> None:
    before = (await center.admin.get("/api/v1/users")).json()
    for fields in (
        {"name": HOSTILE, "role": "viewer"},
        {"name": "short", "role": "viewer", "password": "1"},
        {"name": "odd", "role": "owner"},
        {"name": "", "role": "viewer"},
    ):
        answer = await admin.submit("/settings/users", **fields)
        assert answer.status == 400
        assert not Markup(answer.content).found("img")
    assert (await admin.submit("/settings/users/rules/explode")).status == 400
    after = (await center.admin.get("/api/v1/users")).json()
    assert [one["name"] for one in after["items"]] == [one["name"] for one in before["items"]]


async def test_groups_are_set_and_deleted(center: RunningCenter, admin: PortalUser) -> None:
    await admin.submit("/settings/groups", name="lab", labels="team=b site=rome")
    assert "team=b" in Markup((await admin.open("/settings/groups")).content).text
    await admin.submit("/settings/groups/lab", labels="team=c")
    groups = (await center.admin.get("/api/v1/groups")).json()["items"]
    assert [one["labels"] for one in groups if one["name"] == "lab"] == [["team=c"]]
    assert (await admin.submit("/settings/groups", name="none", labels=" ")).status == 400
    assert (await admin.submit("/settings/groups/lab/delete")).status == 303
    assert (await admin.open("/settings/groups/lab")).status == 404


async def test_a_token_is_shown_once_works_and_is_revoked(
    center: RunningCenter, admin: PortalUser
) -> None:
    answer = await admin.submit(
        "/settings/tokens", role="viewer", name=HOSTILE, days="30", scope="team=a"
    )
    assert answer.status == 200
    token = _secret(answer.content)
    caller = Caller(center.admin._session, center.url, token)
    assert (await caller.get("/api/v1/me")).json()["role"] == "viewer"
    listed = await admin.open("/settings/tokens?filter=role%3Aviewer")
    assert token.encode() not in listed.content
    page = Markup(listed.content)
    assert HOSTILE in page.text
    assert not page.found("img")
    lines = (await center.admin.get("/api/v1/tokens")).json()["items"]
    name = next(one["token"]["id"] for one in lines if one["token"]["note"] == HOSTILE)
    assert (await admin.open(f"/settings/tokens/{name}")).status == 200
    assert (await admin.submit(f"/settings/tokens/{name}/revoke")).status == 303
    lines = (await center.admin.get("/api/v1/tokens")).json()["items"]
    assert [one["state"] for one in lines if one["token"]["id"] == name] == ["revoked"]
    actions = Markup((await admin.open(f"/settings/tokens/{name}")).content).found("form")
    assert f"/settings/tokens/{name}/revoke" not in {tag.get("action") for tag in actions}


async def test_wrong_tokens_are_refused(admin: PortalUser) -> None:
    for fields in ({"role": "owner"}, {"role": "viewer", "days": "-1"}, {"role": "agent"}):
        assert (await admin.submit("/settings/tokens", **fields)).status == 400
    assert (await admin.open("/settings/tokens/0000000000000000")).status == 404
    assert (await admin.open("/settings/tokens/%22%3E%3Cimg%3E")).status == 404


async def test_a_rule_of_a_host_is_set_and_cleared(
    center: RunningCenter, admin: PortalUser
) -> None:
    made = await admin.submit(
        "/settings/hosts", host="b.test", rate="0.5", concurrency="2", robots="ignore"
    )
    assert (made.status, made.headers["Location"]) == (303, "/settings/hosts/b.test")
    rule = (await center.admin.get("/api/v1/sites/b.test")).json()["rule"]
    assert rule == {"rate": 0.5, "concurrency": 2, "robots": False}
    page = Markup((await admin.open("/settings/hosts/b.test")).content)
    values = {tag.get("name"): tag.get("value") for tag in page.found("input")}
    assert (values["rate"], values["concurrency"]) == ("0.5", "2")
    await admin.submit("/settings/hosts/b.test", rate="", concurrency="3", robots="")
    rule = (await center.admin.get("/api/v1/sites/b.test")).json()["rule"]
    assert rule == {"rate": None, "concurrency": 3, "robots": None}
    for wrong in ({"rate": "fast"}, {"concurrency": "0"}, {"concurrency": "1.5"}, {"robots": "x"}):
        assert (await admin.submit("/settings/hosts/b.test", **wrong)).status == 400
    assert (await center.admin.get("/api/v1/sites/b.test")).json()["rule"] == rule
    await admin.submit("/settings/hosts/b.test/clear")
    rule = (await center.admin.get("/api/v1/sites/b.test")).json()["rule"]
    assert rule == {"rate": None, "concurrency": None, "robots": None}


async def test_retention_shows_what_is_stored(center: RunningCenter, admin: PortalUser) -> None:
    page = Markup((await admin.open("/settings/retention")).content)
    assert "Bodies of pages" in page.text
    assert "Nothing is due." in page.text
    assert (await admin.submit("/settings/retention/clean")).status == 303
