"""The pages of applications and of two compared runs, without scripts. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from skep.testing.doubles.app_agent import ManualAppAgent
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import until_found
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "<script>alert(1)</script>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "tool").mkdir()
    (folder / "tool" / "main.py").write_text("print('hello')\n")
    data = tmp_path_factory.mktemp("center")
    async with running_center(data, jobs_folder=str(folder), jobs_keep_every=0.05) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "app-admin")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hand(center: RunningCenter) -> AsyncIterator[ManualAppAgent]:
    made = await ManualAppAgent(center.agent, "apps-here").start()
    yield made
    await made.die()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(center: RunningCenter, hand: ManualAppAgent) -> str:
    """A run with one instance that has written three lines, the last one without an end."""
    app = {"package": "tool", "command": ["python", "main.py"]}
    job = {"app": app, "placement": {"strategy": "fixed", "n": 1}}
    assert (await center.admin.put("/api/v1/jobs/tool", job)).status == 200
    name: str = (await center.admin.post("/api/v1/jobs/tool/run")).json()["run"]
    await until_found(lambda: _instance(center, name, "running"))
    await hand.write((name, 0), f"first 采集\n{HOSTILE}\nopen".encode())
    return name


async def _instance(center: RunningCenter, run: str, state: str) -> Any:
    lines = (await center.admin.get(f"/api/v1/runs/{run}/instances")).json()["items"]
    return next((line for line in lines if line["instance"]["state"] == state), None)


async def test_applications_and_instances_are_listed(admin: PortalUser, run: str) -> None:
    page = Markup((await admin.open("/apps")).content)
    assert f"/apps/{run}" in {one.get("href") for one in page.found("a")}
    text = Markup((await admin.open(f"/apps/{run}")).content).text
    assert "Instance 0" in text
    assert "apps-here" in text


async def test_a_log_is_text_and_goes_on(admin: PortalUser, run: str, hand: ManualAppAgent) -> None:
    content = (await admin.open(f"/apps/{run}/0")).content
    page = Markup(content)
    assert HOSTILE in page.text
    assert HOSTILE.encode() not in content
    log = next(one for one in page.found("div") if "data-log" in one)
    assert log["data-lines"] == "/app-lines"
    await hand.write((run, 0), b" ends\nlast\n")
    found = (await admin.open(f"/app-lines?{log['data-newer']}")).json()
    assert [one["text"] for one in found["lines"]] == [" ends", "last"]
    assert found["joins"] is True
    older = (await admin.open(f"/app-lines?run={run}&no=0&before=13")).json()
    assert [one["text"] for one in older["lines"]] == ["first 采集"]
    assert (older["older"], older["newer"]) == ("", "")


async def test_an_instance_is_stopped_and_restarted(
    center: RunningCenter, admin: PortalUser, run: str
) -> None:
    viewer = await portal_user(center, "app-viewer", "viewer")
    page = Markup((await viewer.open(f"/apps/{run}")).content)
    assert not [one for one in page.found("form") if one.get("action", "").startswith("/apps/")]
    assert (await viewer.submit(f"/apps/{run}/0/stop")).status == 403
    line = await _instance(center, run, "running")
    assert line["wanted"] == "running"
    assert (await admin.submit(f"/apps/{run}/0/restart")).status == 303
    again = (await center.admin.get(f"/api/v1/runs/{run}/instances")).json()["items"][0]
    assert again["instance"]["round"] == 1
    # Last: a run whose only instance is stopped ends.
    assert (await admin.submit(f"/apps/{run}/0/stop")).status == 303
    stopped = (await center.admin.get(f"/api/v1/runs/{run}/instances")).json()["items"][0]
    assert stopped["wanted"] == "stopped"


@pytest.mark.parametrize("path", ["/apps/nothing", "/apps/{run}/9", "/apps/{run}/x"])
async def test_an_unknown_instance_is_a_page_with_404(
    admin: PortalUser, run: str, path: str
) -> None:
    assert (await admin.open(path.format(run=run))).status == 404


async def test_two_runs_are_compared(center: RunningCenter, admin: PortalUser) -> None:
    await center.open_run("before", retries=1)
    await center.open_run("after", retries=4)
    await center.put("after", ["http://a.test/1", "http://a.test/2"])
    page = Markup((await admin.open("/compare?old=before&new=after")).content)
    words = " ".join(page.text.split())
    # Cells follow each other without a space.
    assert "retries14" in words
    assert "accepted02" in words
    assert "host_concurrency" not in words, "only settings that differ"
    assert (await admin.open("/compare?old=before&new=nothing")).status == 404
    assert (await admin.open("/compare")).status == 200
    sent = "%3Cscript%3Ealert(1)%3C/script%3E"
    answer = await admin.open(f"/compare?old={sent}&new=after")
    assert answer.status in {400, 404}
    assert HOSTILE.encode() not in answer.content
