"""System in the portal: readiness, versions, self-check, storage and the audit log. P4."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from skep import __version__
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.portal_pages import Markup, PortalUser, portal_user
from skep.testing.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        await running.archive_pages(2, "shown")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "watches")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(center: RunningCenter) -> PortalUser:
    return await portal_user(center, "looks", "viewer")


async def test_the_system_shows_checks_versions_and_the_backup(
    center: RunningCenter, viewer: PortalUser
) -> None:
    text = Markup((await viewer.open("/system")).content).text
    assert __version__ in text
    assert center.services.name in text
    for check in ("Store", "Bus", "Archive", "Disk"):
        assert check in text
    assert center.services.store.describe() in text, "a session may read the details"
    assert "skep backup" in text


async def test_a_failing_check_says_what_to_do(
    center: RunningCenter, admin: PortalUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skep.errors import Unavailable

    def full() -> None:
        raise Unavailable(f"no space {HOSTILE}")

    monkeypatch.setattr(center.services.disk, "check", full)
    page = Markup((await admin.open("/system")).content)
    assert "not ready" in page.text
    assert "Free disk space" in page.text
    assert "no space" in page.text
    assert not page.found("img")


async def test_storage_shows_disks_and_the_archive(viewer: PortalUser) -> None:
    page = Markup((await viewer.open("/system/storage")).content)
    assert "Segments" in page.text
    assert "shown" in page.text


async def test_the_audit_log_shows_before_and_after(
    center: RunningCenter, admin: PortalUser
) -> None:
    for note in ("first", HOSTILE):
        job = {"name": "noted", "note": note, "requests": ["http://a.test/"]}
        assert (await center.admin.put("/api/v1/jobs/noted", job)).status == 200

    async def rows() -> list[str]:
        page = Markup((await admin.open("/system/audit?filter=object%3Ajob%3Anoted")).content)
        links = [tag.get("href", "") for tag in page.found("a")]
        return [link for link in links if link.startswith("/system/audit/")]

    await until(rows)
    row = (await rows())[0]
    answer = await admin.open(row)
    assert answer.status == 200
    page = Markup(answer.content)
    assert "first" in page.text
    assert HOSTILE.replace('"', '\\"') in page.text
    assert not page.found("img")
    marked = [
        tag["class"] for tag in page.found("span") if tag.get("class") in {"added", "removed"}
    ]
    assert set(marked) == {"added", "removed"}


async def test_unknown_rows_are_not_found(admin: PortalUser) -> None:
    for name in ("0", "999999999", "x", "9" * 40):
        assert (await admin.open(f"/system/audit/{name}")).status == 404, name


async def test_a_wrong_filter_says_why(admin: PortalUser) -> None:
    answer = await admin.open("/system/audit?filter=nonsense%3Ax")
    assert answer.status == 200
    assert [tag for tag in Markup(answer.content).found("p") if tag.get("id") == "filter-problem"]


async def test_a_viewer_does_not_see_the_audit_log(
    center: RunningCenter, viewer: PortalUser
) -> None:
    answer = await viewer.open("/system/audit")
    assert answer.status == 200
    assert "Your role does not allow this" in Markup(answer.content).text
    assert (await viewer.open("/system/audit/1")).status == 403
