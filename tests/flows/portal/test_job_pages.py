"""The pages of one job, of a new job, and of schedules, without scripts. P4."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest
import pytest_asyncio

from skep.model.jobs.fire import Fire, FireState, key_of_due
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "job-admin")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "job-viewer", "viewer")


async def keep(center: RunningCenter, name: str, **fields: Any) -> None:
    document = {"requests": ["http://a.test/"], **fields}
    answer = await center.admin.put(f"/api/v1/jobs/{name}", document)
    assert answer.status == 200, answer.content


async def job_of(center: RunningCenter, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await center.admin.get(f"/api/v1/jobs/{name}")).json()["kept"]
    return found


def value_of(page: bytes, name: str) -> str:
    """The value of a hidden or written field."""
    return next(one["value"] for one in Markup(page).found("input") if one.get("name") == name)


def written(page: bytes) -> str:
    """The YAML in the editor."""
    found = re.search(r'<textarea id="yaml"[^>]*>(.*?)</textarea>', page.decode(), re.DOTALL)
    assert found is not None
    return unescape(found.group(1))


def actions(page: bytes) -> set[str]:
    return {one.get("action", "") for one in Markup(page).found("form")}


async def test_the_overview_shows_runs_due_times_and_the_newest_ledger(
    center: RunningCenter, admin: PortalUser
) -> None:
    await keep(center, "shown", schedule={"cron": "0 3 * * *", "zone": "Europe/Berlin"})
    started = (await center.admin.post("/api/v1/jobs/shown/run")).json()["run"]
    view = (await center.admin.get("/api/v1/jobs/shown")).json()
    text = Markup((await admin.open("/jobs/shown")).content).text
    assert started in text
    assert view["next"][0][:19].replace("T", " ") in text
    assert "0 unaccounted" in text


@pytest.mark.parametrize("path", ["/jobs/nothing", "/jobs/nothing?tab=run", "/schedules/nothing"])
async def test_an_unknown_job_is_a_page_with_404(admin: PortalUser, path: str) -> None:
    assert (await admin.open(path)).status == 404


async def test_acts_change_the_job(center: RunningCenter, admin: PortalUser) -> None:
    await keep(center, "acted")
    assert (await admin.submit("/jobs/acted/disable")).status == 303
    assert (await job_of(center, "acted"))["job"]["enabled"] is False
    page = (await admin.open("/jobs/acted")).content
    assert "/jobs/acted/enable" in actions(page)
    assert "/jobs/acted/disable" not in actions(page)
    await admin.submit("/jobs/acted/enable")
    assert "enabled" not in (await job_of(center, "acted"))["job"]
    answer = await admin.submit("/jobs/acted/delete")
    assert answer.headers["Location"] == "/jobs"
    assert (await job_of(center, "acted"))["deleted"] is True


async def test_runs_of_a_job_are_paused_and_stopped(
    center: RunningCenter, admin: PortalUser
) -> None:
    await keep(center, "steered")
    run = (await center.admin.post("/api/v1/jobs/steered/run")).json()["run"]
    await admin.submit("/jobs/steered/pause")
    assert (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]["state"] == "paused"
    await admin.submit("/jobs/steered/stop")
    assert (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]["state"] == "cancelled"


async def test_a_viewer_reads_and_cannot_act(center: RunningCenter, viewer: PortalUser) -> None:
    await keep(center, "guarded")
    for tab in ("overview", "definition", "revisions", "run"):
        page = await viewer.open(f"/jobs/guarded?tab={tab}")
        assert page.status == 200
        assert not {one for one in actions(page.content) if one.startswith("/jobs/guarded/")}
    before = await job_of(center, "guarded")
    for act in ("run", "disable", "delete", "pause"):
        assert (await viewer.submit(f"/jobs/guarded/{act}")).status == 403
    yaml = "name: guarded\nrequests: ['http://b.test/']"
    for path in ("/jobs/guarded/definition", "/new/job"):
        answer = await viewer.submit(path, act="save", yaml=yaml, revision="1")
        assert answer.status == 403
    assert (await viewer.submit("/jobs/guarded/restore", revision="1")).status == 403
    assert await job_of(center, "guarded") == before


async def test_a_run_gets_its_arguments_and_a_form_that_is_sent_twice_starts_one_run(
    center: RunningCenter, admin: PortalUser
) -> None:
    generator = {"kind": "python", "code": "def generate(n='1'): yield f'http://a.test/{n}'"}
    await keep(center, "argued", requests=[], generators=[{**generator, "arguments": {"n": "1"}}])
    page = (await admin.open("/jobs/argued?tab=run")).content
    assert any(one.get("name") == "argument.n" for one in Markup(page).found("input"))
    sent = {"key": value_of(page, "key"), "argument.n": "7", "labels": "who=anna"}
    first = await admin.submit("/jobs/argued/run", **sent)
    again = await admin.submit("/jobs/argued/run", **sent)
    assert first.headers["Location"] == again.headers["Location"]
    runs = (await center.admin.get("/api/v1/jobs/argued")).json()["runs"]
    assert [one["arguments"] for one in runs] == ['{"n":"7"}']
    wrong = await admin.submit("/jobs/argued/run", arguments="no equals sign")
    assert wrong.status == 400
    assert len((await center.admin.get("/api/v1/jobs/argued")).json()["runs"]) == 1


async def test_a_document_is_checked_and_saved(center: RunningCenter, admin: PortalUser) -> None:
    await keep(center, "edited", settings={"retries": 1})
    page = (await admin.open("/jobs/edited?tab=definition")).content
    sent = {"revision": value_of(page, "revision"), "act": "check"}
    yaml = "name: edited\nrequests: ['http://b.test/']\n"
    checked = await admin.submit("/jobs/edited/definition", yaml=yaml, **sent)
    assert checked.status == 200
    assert "+- http://b.test/" in Markup(checked.content).text
    assert (await job_of(center, "edited"))["revision"] == 1
    wrong = await admin.submit(
        "/jobs/edited/definition", **{**sent, "act": "save"}, yaml=f"{yaml}priority: 9\n"
    )
    assert wrong.status == 400
    assert "priority" in Markup(wrong.content).text
    assert "http://b.test/" in Markup(wrong.content).text, "the typed text is still there"
    assert (await job_of(center, "edited"))["revision"] == 1
    saved = await admin.submit("/jobs/edited/definition", yaml=yaml, **{**sent, "act": "save"})
    assert saved.status == 303
    assert (await job_of(center, "edited"))["job"]["requests"] == ["http://b.test/"]


async def test_text_that_is_not_yaml_is_explained(center: RunningCenter, admin: PortalUser) -> None:
    await keep(center, "spoiled")
    for yaml in ("a: [", "- 1\n- 2", "", "name: x\nname: y", "*unknown"):
        sent = {"revision": "1", "act": "save", "yaml": yaml}
        answer = await admin.submit("/jobs/spoiled/definition", **sent)
        assert answer.status == 400, yaml
        assert "YAML" in Markup(answer.content).text
    assert (await job_of(center, "spoiled"))["revision"] == 1


async def test_the_form_goes_into_the_yaml_and_leaves_the_rest(
    center: RunningCenter, admin: PortalUser
) -> None:
    await keep(center, "formed")
    yaml = (
        "name: formed\nkeep: {rows_age: 100}\nschedule: 0 4 * * *\n"
        "requests: ['http://a.test/']\nsettings: {dispatch: 5, retries: 1}\n"
    )
    fields = {
        "note": "each night",
        "requests": "http://a.test/1\r\nhttp://a.test/2",
        "schedule.cron": "0 5 * * *",
        "schedule.zone": "Asia/Shanghai",
        "settings.retries": "4",
        "settings.robots": "yes",
        "enabled": "yes",
    }
    sent = {"act": "form", "revision": "1", "yaml": yaml, **fields}
    answer = await admin.submit("/jobs/formed/definition", **sent)
    assert answer.status == 200
    yaml = written(answer.content)
    saved = await admin.submit("/jobs/formed/definition", act="save", revision="1", yaml=yaml)
    assert saved.status == 303, Markup(saved.content).text
    job = (await job_of(center, "formed"))["job"]
    assert job["note"] == "each night"
    assert job["requests"] == ["http://a.test/1", "http://a.test/2"]
    assert job["schedule"] == {"cron": "0 5 * * *", "zone": "Asia/Shanghai"}
    assert job["settings"] == {"dispatch": 5, "retries": 4}
    assert job["keep"] == {"rows_age": 100.0}


async def test_the_second_of_two_editors_is_told_and_shown_the_differences(
    center: RunningCenter, admin: PortalUser
) -> None:
    await keep(center, "shared")
    other = await portal_user(center, "other-editor", "operator")
    mine = {"act": "save", "revision": "1", "yaml": "name: shared\nrequests: ['http://mine.test/']"}
    theirs = {**mine, "yaml": "name: shared\nrequests: ['http://theirs.test/']"}
    assert (await other.submit("/jobs/shared/definition", **theirs)).status == 303
    answer = await admin.submit("/jobs/shared/definition", **mine)
    assert answer.status == 409
    text = Markup(answer.content).text
    assert "other-editor" in text
    assert "+- http://theirs.test/" in text
    assert "-- http://theirs.test/" in text
    assert "+- http://mine.test/" in text
    assert (await job_of(center, "shared"))["job"]["requests"] == ["http://theirs.test/"]
    checked = await admin.submit("/jobs/shared/definition", **{**mine, "act": "check"})
    assert "other-editor" in Markup(checked.content).text
    again = {**mine, "revision": value_of(answer.content, "revision")}
    assert (await admin.submit("/jobs/shared/definition", **again)).status == 303
    assert (await job_of(center, "shared"))["job"]["requests"] == ["http://mine.test/"]


async def test_revisions_are_compared_and_restored(
    center: RunningCenter, admin: PortalUser
) -> None:
    note = "two\nlines, and: signs # 采集"
    await keep(center, "revised", note=note)
    await keep(center, "revised", note="other")
    page = Markup((await admin.open("/jobs/revised?tab=revisions")).content)
    assert "+note: other" in page.text
    answer = await admin.submit("/jobs/revised/restore", revision="1")
    assert answer.status == 303
    kept = await job_of(center, "revised")
    assert (kept["revision"], kept["job"]["note"]) == (3, note)
    assert (await admin.submit("/jobs/revised/restore", revision="99")).status in {400, 404}
    await center.admin.send("DELETE", "/api/v1/jobs/revised", None, {})
    assert (await admin.submit("/jobs/revised/restore", revision="2")).status == 303
    kept = await job_of(center, "revised")
    assert (kept["deleted"], kept["job"]["note"]) == (False, "other")


@pytest.mark.parametrize("kind", ["requests", "spider", "generator", "app"])
async def test_each_template_of_a_new_job_is_readable(admin: PortalUser, kind: str) -> None:
    page = await admin.open(f"/new/job?kind={kind}")
    assert page.status == 200
    assert "not YAML" not in Markup(page.content).text


async def test_a_new_job_is_stored_once(center: RunningCenter, admin: PortalUser) -> None:
    yaml = "name: made-here\nrequests: ['http://a.test/']"
    sent = {"act": "save", "revision": "0", "yaml": yaml}
    answer = await admin.submit("/new/job", **sent)
    assert (answer.status, answer.headers["Location"]) == (303, "/jobs/made-here")
    assert (await job_of(center, "made-here"))["revision"] == 1
    again = await admin.submit("/new/job", **sent)
    assert again.status == 400
    assert "made-here" in Markup(again.content).text
    for bad in ("", "a/b", "../x"):
        wrong = await admin.submit("/new/job", **{**sent, "yaml": f"name: '{bad}'\nrequests: []"})
        assert wrong.status == 400


async def test_a_copy_of_a_job_has_another_name(center: RunningCenter, admin: PortalUser) -> None:
    await keep(center, "copied", note="from here")
    text = Markup((await admin.open("/new/job?like=copied")).content).text
    assert "name: copied-copy" in text
    assert "note: from here" in text


async def test_schedules_and_the_ledger_show_what_the_api_says(
    center: RunningCenter, admin: PortalUser
) -> None:
    await keep(center, "timed", schedule={"every": 3600, "overlap": "queue"})
    await _fire(center, "timed", 3600, FireState.MISSED, "no center was up")
    await _fire(center, "timed", 7200, FireState.SKIPPED, "an earlier run still runs")
    text = Markup((await admin.open("/schedules")).content).text
    assert "timed" in text
    assert "every: 3600" in text
    ledger = Markup((await admin.open("/schedules/timed")).content).text
    assert "no center was up" in ledger
    assert "an earlier run still runs" in ledger
    only = Markup((await admin.open("/schedules/timed?filter=state%3Amissed")).content).text
    assert "no center was up" in only
    assert "an earlier run still runs" not in only


async def _fire(center: RunningCenter, job: str, due: int, state: FireState, why: str) -> None:
    """Put a row into the ledger, as the scheduler does."""
    fire = Fire(job, key_of_due(due), due, state, why, ended_at=float(due))
    assert await center.services.store.fires.add([fire]) == 1
