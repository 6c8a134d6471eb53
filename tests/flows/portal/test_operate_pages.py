"""Logs, alerts and operations in the portal show what the API says, and acts change it. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from skep.model.logs import LogSource, LogSourceKind
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user
from skep.testing.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        await running.open_run("shown")
        source = LogSource(LogSourceKind.SPIDER, "quotes", "shown", "")
        for at in range(30):
            running.services.logs.wrote(source, 1, f"line {at} <b>{HOSTILE}</b>")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "operates")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "looks", "viewer")


async def _raise(center: RunningCenter, kind: str, subject: str, detail: str = "") -> None:
    services = center.services
    await services.store.alerts.raise_(kind, subject, detail or kind, services.clock.now())


async def _alerts(center: RunningCenter) -> dict[tuple[str, str], dict[str, str]]:
    found = (await center.admin.get("/api/v1/alerts")).json()["items"]
    return {(one["kind"], one["subject"]): one for one in found}


def _actions(content: bytes) -> set[str]:
    return {tag.get("action", "") for tag in Markup(content).found("form")}


async def test_logs_show_the_lines_that_the_filter_matches(
    center: RunningCenter, admin: PortalUser
) -> None:
    async def written() -> bool:
        return "line 29" in Markup((await admin.open("/logs?filter=run%3Ashown")).content).text

    await until(written)
    some = Markup((await admin.open("/logs?filter=%22line+17%22")).content)
    assert "line 17" in some.text
    assert "line 16" not in some.text
    assert not [tag for tag in some.found("img") if "onerror" in tag]
    files = [tag["href"] for tag in some.found("a") if "download" in tag]
    assert len(files) == 2
    answer = await admin.open(files[0])
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert b"line 17" in answer.content
    assert b"line 16" not in answer.content


async def test_a_refused_filter_of_logs_says_why(admin: PortalUser) -> None:
    answer = await admin.open("/logs?filter=nonsense%3Ax")
    assert answer.status == 200
    problem = [
        tag for tag in Markup(answer.content).found("p") if tag.get("id") == "filter-problem"
    ]
    assert problem


async def test_the_time_of_a_line_leads_to_the_lines_around_it(
    center: RunningCenter, admin: PortalUser
) -> None:
    async def written() -> bool:
        return "line 17" in Markup((await admin.open("/logs?filter=%22line+17%22")).content).text

    await until(written)
    page = Markup((await admin.open("/logs?filter=%22line+17%22")).content)
    links = [tag["href"] for tag in page.found("a") if "/logs/context" in tag.get("href", "")]
    around = await admin.open(links[0].partition("#")[0])
    text = Markup(around.content).text
    assert around.status == 200
    assert "line 16" in text
    assert "line 18" in text
    marked = [tag for tag in Markup(around.content).found("div") if tag.get("id") == "at"]
    assert len(marked) == 1


async def test_a_line_that_cannot_be_is_refused(admin: PortalUser) -> None:
    assert (await admin.open("/logs/context")).status == 400
    assert (await admin.open("/logs/context?source=x&kind=nothing")).status == 400
    gone = await admin.open("/logs/context?source=x&kind=center&token=9&offset=9")
    assert gone.status == 200
    assert "no longer stored" in Markup(gone.content).text


async def test_an_alert_is_acknowledged_and_muted(center: RunningCenter, admin: PortalUser) -> None:
    await _raise(center, "agent_dead", "home-2", "home-2 is silent")
    assert "home-2 is silent" in Markup((await admin.open("/alerts")).content).text
    which = {"kind": "agent_dead", "subject": "home-2"}
    done = await admin.submit("/alerts/acknowledge", **which, next="/alerts")
    assert (done.status, done.headers["Location"]) == (303, "/alerts")
    assert (await _alerts(center))["agent_dead", "home-2"]["state"] == "acknowledged"
    await admin.submit("/alerts/mute", **which, hours="8")
    assert (await _alerts(center))["agent_dead", "home-2"]["state"] == "muted"
    assert "End the mute" in Markup((await admin.open("/alerts")).content).text
    await admin.submit("/alerts/mute", **which, hours="0")
    assert (await _alerts(center))["agent_dead", "home-2"]["state"] == "acknowledged"
    assert (await admin.submit("/alerts/mute", **which, hours="9999")).status == 400


async def test_an_unknown_alert_is_not_found(admin: PortalUser) -> None:
    answer = await admin.submit("/alerts/acknowledge", kind="nothing", subject="x")
    assert answer.status == 404


async def test_a_viewer_cannot_act_on_alerts(center: RunningCenter, viewer: PortalUser) -> None:
    await _raise(center, "disk_low", "c1")
    page = (await viewer.open("/alerts")).content
    assert "disk_low" in Markup(page).text
    assert not [one for one in _actions(page) if one.startswith("/alerts/")]
    answer = await viewer.submit("/alerts/acknowledge", kind="disk_low", subject="c1")
    assert answer.status == 403
    assert (await _alerts(center))["disk_low", "c1"]["state"] == "firing"
    rule = (await viewer.open("/alerts/rules/failure_rate")).content
    assert "/alerts/rules/failure_rate" not in _actions(rule)
    assert "threshold" in Markup(rule).text
    assert (await viewer.submit("/alerts/rules/failure_rate", measure="failure_rate")).status in {
        400,
        403,
    }


async def test_hostile_alerts_are_text(center: RunningCenter, admin: PortalUser) -> None:
    await _raise(center, "odd", HOSTILE, HOSTILE)
    page = Markup((await admin.open("/alerts")).content)
    assert HOSTILE in page.text
    assert not page.found("img")
    await admin.submit("/alerts/acknowledge", kind="odd", subject=HOSTILE)
    assert (await _alerts(center))["odd", HOSTILE]["state"] == "acknowledged"


async def test_a_rule_is_made_changed_and_deleted(center: RunningCenter, admin: PortalUser) -> None:
    made = await admin.submit(
        "/alerts/new-rule",
        rule_name="many_failures",
        measure="failure_rate",
        threshold="0.9",
        severity="critical",
        enabled="yes",
    )
    assert (made.status, made.headers["Location"]) == (303, "/alerts/rules/many_failures")
    page = Markup((await admin.open("/alerts/rules/many_failures")).content)
    values = {tag["name"]: tag.get("value") for tag in page.found("input") if "name" in tag}
    assert values["threshold"] == "0.9"
    changed = await admin.submit(
        "/alerts/rules/many_failures", measure="failure_rate", threshold="0.8"
    )
    assert changed.status == 303
    rules = {
        one["name"]: one for one in (await center.admin.get("/api/v1/alert-rules")).json()["items"]
    }
    assert rules["many_failures"]["rule"]["threshold"] == 0.8
    assert rules["many_failures"]["rule"]["enabled"] is False
    assert "many_failures" in Markup((await admin.open("/alerts/rules")).content).text
    assert (await admin.submit("/alerts/rules/many_failures/delete")).status == 303
    assert (await admin.open("/alerts/rules/many_failures")).status == 404


async def test_a_wrong_rule_changes_nothing(center: RunningCenter, admin: PortalUser) -> None:
    before = (await center.admin.get("/api/v1/alert-rules")).json()
    for wrong in (
        {"measure": "nonsense", "threshold": "1"},
        {"measure": "failure_rate", "threshold": "much"},
        {"measure": "failure_rate"},
    ):
        assert (await admin.submit("/alerts/rules/failure_rate", **wrong)).status == 400
    wrong_name = {"rule_name": HOSTILE, "measure": "failure_rate", "threshold": "1"}
    assert (await admin.submit("/alerts/new-rule", **wrong_name)).status in {400, 404}
    assert (await center.admin.get("/api/v1/alert-rules")).json() == before


async def test_operations_are_listed(center: RunningCenter, admin: PortalUser) -> None:
    empty = Markup((await admin.open("/operations")).content)
    assert "There are no operations yet" in empty.text
    body = {"resource": "runs", "act": "pause", "filter": "id:shown", "dry_run": False}
    number = (await center.admin.post("/api/v1/operations", body)).json()["operation"]["id"]
    page = Markup((await admin.open("/operations")).content)
    links = [tag["href"] for tag in page.found("a") if "href" in tag]
    assert f"/operations/{number}" in links
    assert "id:shown" in page.text
    assert (await admin.open(f"/operations/{number}")).status == 200

    async def ended() -> bool:
        found = (await center.admin.get(f"/api/v1/operations/{number}")).json()
        return bool(found["ended_at"])

    await until(ended)
    assert "No operation is open" in Markup((await admin.open("/operations?open=yes")).content).text
    assert (await admin.open("/operations?before=x")).status == 200
