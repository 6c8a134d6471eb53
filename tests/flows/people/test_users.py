"""Admins manage users and groups over the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from skep.testing.grounds.browsers import PASSWORD, add_user, browser, logged_in
from skep.testing.grounds.centers import Answer, RunningCenter, running_center

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


async def change(center: RunningCenter, name: str, **body: Any) -> Answer:
    return await center.admin._json("PATCH", f"/api/v1/users/{name}", body)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Anna",
        "a b",
        "token:ci",
        "../admin",
        "a" * 65,
        "<script>alert(1)</script>",
        "anna\n",
        "\u202eanna",
        "anna\x00",
        "管理员",
        "-rf",
        ".",
    ],
)
async def test_hostile_user_names_are_refused(center: RunningCenter, name: str) -> None:
    answer = await center.admin.post("/api/v1/users", {"name": name, "password": PASSWORD})
    assert answer.status == 400, answer.content
    assert name not in [
        u["name"] for u in (await center.admin.get("/api/v1/users")).json()["items"]
    ]


async def test_no_answer_holds_a_password_or_its_hash(center: RunningCenter) -> None:
    body = {"name": "quiet", "role": "viewer", "password": PASSWORD}
    created = await center.admin.post("/api/v1/users", body)
    listed = await center.admin.get("/api/v1/users")
    shown = await center.admin.get("/api/v1/users/quiet")
    for answer in (created, listed, shown):
        assert PASSWORD.encode() not in answer.content
        assert b"scrypt" not in answer.content
    assert shown.json()["has_password"] is True


async def test_the_last_admin_is_kept(center: RunningCenter) -> None:
    await add_user(center, "boss", "admin")
    assert (await change(center, "boss", role="viewer")).problem().code == "conflict"
    assert (await change(center, "boss", disabled=True)).problem().code == "conflict"
    assert (await center.admin.send("DELETE", "/api/v1/users/boss")).problem().code == "conflict"
    await add_user(center, "second", "admin")
    assert (await change(center, "boss", role="viewer")).json()["role"] == "viewer"
    assert (await center.admin.send("DELETE", "/api/v1/users/boss")).status == 200
    assert (await center.admin.get("/api/v1/users/boss")).status == 404


async def test_a_disabled_user_is_out_at_once_and_may_come_back(center: RunningCenter) -> None:
    page = await logged_in(center, "leaver")
    await change(center, "leaver", disabled=True)
    assert (await page.call("GET", "/api/v1/me")).status == 401
    assert (await browser(center).log_in("leaver")).status == 401
    assert (await center.admin.post("/api/v1/users/leaver/link")).status == 404
    await change(center, "leaver", disabled=False)
    assert (await page.call("GET", "/api/v1/me")).status == 401, "old sessions stay ended"
    assert (await browser(center).log_in("leaver")).status == 200


async def test_only_admins_see_and_change_users(center: RunningCenter) -> None:
    page = await logged_in(center, "clerk", "operator")
    body = {"name": "clerk2", "role": "admin", "password": PASSWORD}
    assert (await page.call("GET", "/api/v1/users")).status == 403
    assert (await page.call("POST", "/api/v1/users", body)).status == 403
    own = {"role": "admin"}
    assert (await page.call("PATCH", "/api/v1/users/clerk", own)).status == 403


async def test_an_admin_by_session_has_the_rights_of_an_admin_token(center: RunningCenter) -> None:
    page = await logged_in(center, "chief", "admin")
    body = {"name": "made", "password": PASSWORD}
    assert (await page.call("POST", "/api/v1/users", body)).status == 201
    assert (await page.call("POST", "/api/v1/users", body)).problem().code == "conflict"


async def test_groups_are_labels_and_stay_while_they_have_members(center: RunningCenter) -> None:
    for wrong in ([], ["x"], ["=a"], ["a="], ["a=b\n"]):
        answer = await center.admin.put("/api/v1/groups/eu", {"labels": wrong})
        assert answer.status == 400, wrong
    made = await center.admin.put("/api/v1/groups/eu", {"labels": ["site=berlin", "site=berlin"]})
    assert made.json()["labels"] == ["site=berlin"]
    page = await logged_in(center, "member", groups=["eu"])
    assert (await page.call("GET", "/api/v1/me")).json()["scope"] == ["site=berlin"]
    gone = await center.admin.send("DELETE", "/api/v1/groups/eu")
    assert "member" in gone.problem().detail
    unknown = await change(center, "member", groups=["mars"])
    assert unknown.status == 404
    await change(center, "member", groups=[])
    assert (await page.call("GET", "/api/v1/me")).json()["scope"] == []
    assert (await center.admin.send("DELETE", "/api/v1/groups/eu")).status == 200
    assert (await center.admin.get("/api/v1/groups")).json() == {"items": []}


async def test_tokens_have_a_scope_an_expiry_and_a_last_use(center: RunningCenter) -> None:
    body = {"role": "viewer", "name": "ci", "seconds": 3600, "scope": ["team=a"]}
    token = (await center.admin.post("/api/v1/tokens", body)).json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    me = (await center.anyone.send("GET", "/api/v1/me", None, bearer)).json()
    assert (me["who"], me["scope"]) == ("token:ci", ["team=a"])
    await center.services.auth.write_uses()
    lines = (await center.admin.get("/api/v1/tokens")).json()["items"]
    (line,) = [line["token"] for line in lines if line["token"]["note"] == "ci"]
    assert line["scope"] == ["team=a"]
    assert line["last_used_at"] > line["created_at"] - 1
    wrong = {"role": "viewer", "scope": ["team"]}
    assert (await center.admin.post("/api/v1/tokens", wrong)).status == 400
