"""Saved views of several people: private ones are seen by their owner alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from skep.testing.grounds.browsers import Browser, logged_in
from skep.testing.grounds.centers import RunningCenter, running_center

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


async def save(page: Browser, name: str, *, shared: bool = False) -> Any:
    body = {"resource": "runs", "filter": "state:failed", "shared": shared}
    answer = await page.call("PUT", f"/api/v1/views/{name}", body)
    assert answer.status == 200, answer.content
    return answer.json()


async def seen(page: Browser) -> list[tuple[str, str]]:
    items = (await page.call("GET", "/api/v1/views")).json()["items"]
    return [(one["name"], one["owner"]) for one in items]


async def test_a_private_view_is_not_shown_to_others_of_the_same_role(
    center: RunningCenter,
) -> None:
    """R3: the owner is the user, not the role."""
    one = await logged_in(center, "one", "operator")
    two = await logged_in(center, "two", "operator")
    assert (await save(one, "mine"))["owner"] == "one"
    await save(one, "ours", shared=True)
    assert await seen(one) == [("mine", "one"), ("ours", "one")]
    assert await seen(two) == [("ours", "one")]
    assert (await two.call("DELETE", "/api/v1/views/mine")).problem().status == 404
    await save(two, "mine")
    assert await seen(two) == [("mine", "two"), ("ours", "one")]
    assert (await center.admin.get("/api/v1/views")).json()["items"][0]["name"] == "ours"


async def test_a_disabled_user_keeps_views_and_a_deleted_one_leaves_none_to_a_namesake(
    center: RunningCenter,
) -> None:
    """P4: a name that is used again gives no access to what its first owner kept."""
    admin = await logged_in(center, "boss", "admin")
    first = await logged_in(center, "carla", "operator")
    await save(first, "secret")
    await save(first, "team", shared=True)
    for disabled in (True, False):
        changed = {"disabled": disabled}
        answer = await admin.call("PATCH", "/api/v1/users/carla", changed)
        assert answer.status == 200
    assert (await first.log_in("carla")).status == 200
    assert ("secret", "carla") in await seen(first)
    assert (await center.admin.send("DELETE", "/api/v1/users/carla")).status == 200
    second = await logged_in(center, "carla", "viewer")
    assert ("secret", "carla") not in await seen(second)
    assert ("team", "carla") in await seen(second), "others use what is shared"
