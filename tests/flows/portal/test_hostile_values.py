"""Hostile names and texts through every value that pages show: text, never markup. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from skep.model.fleet.agent import Registration, Vitals
from skep.model.logs import LogSource, LogSourceKind
from skep.portal.registry import pages
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user
from skep.testing.polling import until
from skep.wire import messages

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARK = "xss-marker"
PAYLOADS = (
    f"<script>{MARK}</script>",
    f'"><img src=x onerror={MARK}>',
    f"'><svg onload={MARK}>",
    f"{{{{ {MARK} }}}}",
    f"</title><script>{MARK}</script>",
    f"javascript:{MARK}",
    f'" autofocus onfocus={MARK} x="',
    f"</script><script>{MARK}</script>",
    f"<!--{MARK}--><b>",
    f"\u202e{MARK}\u202d 采集 🐝",
)
LISTENERS = {"onerror", "onload", "onfocus", "onclick", "onmouseover", "style", "srcdoc"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        await _fill(running)
        yield running


async def _fill(center: RunningCenter) -> None:
    """Put the payloads where users and hosts can put them."""
    for at, payload in enumerate(PAYLOADS):
        job: dict[str, Any] = {
            "name": f"job-{at}",
            "note": payload,
            "customer": payload,
            "requests": ["http://a.test/"],
        }
        job["labels"] = {"team": payload[:60]}
        answer = await center.admin.put(f"/api/v1/jobs/job-{at}", job)
        assert answer.status == 200, answer.content
        await center.admin.put(
            f"/api/v1/runs/run-{at}",
            {
                "settings": {"headers": {"X-Test": payload.encode().hex()}},
                "labels": {"who": payload[:60]},
            },
        )
        await _hostile_agent(center, at, payload)
        services = center.services
        source = LogSource(LogSourceKind.SPIDER, f"spider-{at}", f"run-{at}", "")
        services.logs.wrote(source, 1, payload)
        await services.store.alerts.raise_("test", payload, payload, services.clock.now())


async def _hostile_agent(center: RunningCenter, at: int, payload: str) -> None:
    """An agent that says the payload everywhere it can, and a command to it."""
    hand = center.hand_agent(f"agent-{at}")
    said = payload.translate({0x202E: None, 0x202D: None})
    who = Registration(
        hand.id,
        said,
        group=said,
        labels={said: said},
        address=said,
        os=said,
        version=said,
        kinds=("http", said),
    )
    (await hand.call("register", messages.Register(who))).read(messages.Registered)
    await hand.heartbeat(vitals=Vitals(trouble=payload))
    await center.admin.post(f"/api/v1/agents/{hand.id}/drain")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "careful")


def check(content: bytes) -> None:
    """No payload became a tag, an attribute or a script."""
    markup = Markup(content)
    for tag, attributes in markup.tags:
        assert not LISTENERS & set(attributes), (tag, attributes)
        for name in ("href", "src", "action"):
            assert not attributes.get(name, "").strip().lower().startswith("javascript:")
    scripts = markup.found("script")
    assert all("src" in one or one.get("type") == "application/json" for one in scripts), scripts
    assert not [one for one in markup.found("img") if MARK in str(one)]
    assert b"<script>" + MARK.encode() not in content


@pytest.mark.parametrize("path", [page.path for page in pages() if page.nav is not None])
async def test_every_list_is_safe(admin: PortalUser, path: str) -> None:
    answer = await admin.open(path)
    assert answer.status == 200
    check(answer.content)


@pytest.mark.parametrize("path", ["/overview", "/jobs", "/runs", "/jobs?filter=note%3A*xss*"])
async def test_lists_show_hostile_values_as_text(admin: PortalUser, path: str) -> None:
    answer = await admin.open(path)
    assert answer.status == 200
    assert MARK.encode() in answer.content
    check(answer.content)


async def test_log_lines_are_text(center: RunningCenter, admin: PortalUser) -> None:
    async def written() -> bool:
        return MARK.encode() in (await admin.open("/runs/run-0?tab=log")).content

    await until(written)
    check((await admin.open("/runs/run-0?tab=log")).content)
    lines = await admin.open("/lines?filter=run%3Arun-0")
    assert lines.headers["Content-Type"] == "application/json"
    assert MARK in str(lines.json()["lines"])


@pytest.mark.parametrize("at", range(len(PAYLOADS)))
@pytest.mark.parametrize("tab", ["summary", "settings", "log", "charts"])
async def test_a_run_shows_hostile_values_as_text(admin: PortalUser, at: int, tab: str) -> None:
    answer = await admin.open(f"/runs/run-{at}?tab={tab}")
    assert answer.status == 200
    check(answer.content)


@pytest.mark.parametrize("at", range(len(PAYLOADS)))
@pytest.mark.parametrize("tab", ["summary", "charts", "log"])
async def test_an_agent_shows_hostile_values_as_text(admin: PortalUser, at: int, tab: str) -> None:
    answer = await admin.open(f"/agents/agent-{at}?tab={tab}")
    assert answer.status == 200
    assert MARK.encode() in answer.content
    check(answer.content)


async def test_lists_of_the_fleet_show_hostile_values_as_text(admin: PortalUser) -> None:
    for path in ("/agents", "/placement?run=run-0", "/placement?remove=agent-0&add=agent-1"):
        answer = await admin.open(path)
        assert answer.status == 200, path
        check(answer.content)
    assert MARK.encode() in (await admin.open("/agents")).content


@pytest.mark.parametrize("at", range(len(PAYLOADS)))
@pytest.mark.parametrize("tab", ["overview", "definition", "revisions", "run"])
async def test_a_job_shows_hostile_values_as_text(admin: PortalUser, at: int, tab: str) -> None:
    answer = await admin.open(f"/jobs/job-{at}?tab={tab}")
    assert answer.status == 200
    assert MARK.encode() in answer.content
    check(answer.content)


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_a_hostile_document_is_shown_as_text(admin: PortalUser, payload: str) -> None:
    for path in ("/new/job", "/jobs/job-0/definition"):
        answer = await admin.submit(path, act="save", revision="x", yaml=f"{payload}\n: [")
        assert answer.status == 400
        check(answer.content)


@pytest.mark.parametrize("payload", PAYLOADS)
async def test_hostile_urls_are_shown_as_text(admin: PortalUser, payload: str) -> None:
    sent = quote(payload, safe="")
    for path in (
        f"/jobs?filter={sent}",
        f"/runs?filter={sent}&page={sent}",
        f"/runs/{sent}",
        f"/{sent}",
        f"/login?next={sent}",
        f"/overview?range={sent}&from={sent}",
        f"/runs/run-0?tab={sent}",
        f"/jobs/job-0?tab={sent}",
        f"/jobs/job-0?tab=revisions&old={sent}&new={sent}",
        f"/new/job?kind={sent}",
        f"/schedules?filter={sent}",
        f"/compare?old={sent}&new=run-0",
        f"/complete?resource=runs&text={sent}&at=5",
        f"/find?text={sent}",
        f"/logs?filter={sent}&cursor={sent}",
        f"/logs/context?source={sent}&run={sent}",
        f"/alerts?filter={sent}",
        f"/alerts/rules/{sent}",
        f"/settings/users/{sent}",
        f"/settings/tokens/{sent}",
        f"/settings/hosts/{sent}",
        f"/system/audit?filter={sent}",
        f"/agents?filter={sent}&page={sent}",
        f"/agents/{sent}",
        f"/agents/agent-0?tab={sent}&cursor={sent}",
        f"/hosts?filter={sent}",
        f"/hosts/{sent}",
        f"/lanes?filter={sent}&range={sent}",
        f"/placement?remove={sent}&add={sent}&run={sent}",
    ):
        answer = await admin.open(path)
        assert answer.status in {200, 400, 404}, (path, answer.status)
        if answer.headers["Content-Type"].startswith("text/html"):
            check(answer.content)
        else:
            assert answer.headers["Content-Type"].startswith("application/")


async def test_hostile_forms_and_notices_are_shown_as_text(admin: PortalUser) -> None:
    for payload in PAYLOADS:
        for answer in (
            await admin.submit("/login", user=payload, password="x", next=payload),
            await admin.submit("/bulk", resource=payload, act=payload, scope="all", filter=payload),
            await admin.submit(
                "/bulk", resource="runs", act="pause", scope="selected", key=payload
            ),
            await admin.submit("/add-agent", agent=payload, group=payload, labels=payload),
            await admin.submit("/agents/agent-0/x", verb=payload),
            await admin.submit("/hosts", host=payload, rate=payload),
            await admin.submit("/preferences", language=payload, theme=payload, next=payload),
        ):
            check(answer.content)
        admin.cookies["skep_notice"] = quote(payload, safe="")
        page = await admin.open("/runs")
        check(page.content)


async def test_very_long_values_keep_a_page_small(center: RunningCenter, admin: PortalUser) -> None:
    note = "采" * 10_000
    job = {"name": "long", "note": note, "requests": ["http://a.test/"]}
    assert (await center.admin.put("/api/v1/jobs/long", job)).status == 200
    answer = await admin.open("/jobs?filter=name%3Along")
    assert len(answer.content) < 40_000
