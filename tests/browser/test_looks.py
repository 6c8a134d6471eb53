"""Every page in both themes, three widths and both languages: no errors, accessible. P4."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from playwright.async_api import Browser, StorageState

from skep.portal.registry import pages
from skep.testing.grounds.centers import RunningCenter
from skep.testing.grounds.chromium import WIDTHS, window

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.needs("chromium"),
]

Look = Callable[[str, str, str, str], Awaitable[None]]
#: Lists are taken from the registry; pages of one object are named here.
PAGES = (
    *(page.path for page in pages() if page.nav is not None),
    "/runs?filter=state%3Arunning",
    "/runs/shown",
    "/runs/shown?tab=charts",
    "/runs/shown?tab=settings",
    "/runs/shown?tab=log",
    "/logs?filter=level%3Aerror",
    "/alerts/rules",
    "/alerts/rules/failure_rate",
    "/alerts/new-rule",
    "/settings/groups",
    "/settings/users/looker",
    "/settings/tokens",
    "/settings/hosts",
    "/settings/notices",
    "/settings/retention",
    "/system/storage",
    "/system/audit",
    "/system/audit/1",
    "/agents/a1",
    "/agents/a1?tab=charts",
    "/agents/a1?tab=log",
    "/add-agent",
    "/hosts/a.test",
    "/placement?remove=a1&add=a2&run=",
    "/placement?run=shown",
    "/requests/1",
    "/requests/1?tab=answer",
    "/requests/1?tab=page",
    "/data/shown",
    "/jobs/news",
    "/jobs/news?tab=definition",
    "/jobs/news?tab=revisions",
    "/jobs/news?tab=run",
    "/new/job?kind=spider",
    "/schedules/news",
    "/apps/shown",
    "/compare?old=shown&new=waits",
    "/nothing",
)
THEMES, LOCALES = ("light", "dark"), ("en-US", "zh-CN")
#: Every pair of values is in one of these.
PAIRS = (
    ("light", "phone", "zh-CN"),
    ("dark", "phone", "en-US"),
    ("light", "tablet", "en-US"),
    ("dark", "tablet", "zh-CN"),
    ("light", "wide", "en-US"),
    ("dark", "wide", "zh-CN"),
)
ALL = tuple(product(THEMES, WIDTHS, LOCALES))
#: Each page with one look, and each look with some page.
SHORT = [(page, *PAIRS[at % len(PAIRS)]) for at, page in enumerate(PAGES)]


@pytest.fixture
def look(browser: Browser, center: RunningCenter, session: StorageState) -> Look:
    return partial(_look, browser, center.url, session)


async def _look(
    browser: Browser,
    url: str,
    session: StorageState,
    page: str,
    theme: str,
    width: str,
    locale: str,
) -> None:
    options: dict[str, Any] = {
        "storage_state": session,
        "color_scheme": theme,
        "viewport": {"width": WIDTHS[width], "height": 860},
        "locale": locale,
    }
    async with window(browser, url, **options) as found:
        await found.open(page)
        assert await found.page.locator("h1").count() == 1
        assert await found.page.get_attribute("html", "lang") == locale[:2]
        assert await found.width_of_content() <= WIDTHS[width], "it scrolls sideways"
        assert await found.axe() == []
        missing = [fault for fault in found.faults if "404" not in fault or page != "/nothing"]
        assert missing == []


@pytest.mark.parametrize(("page", "theme", "width", "locale"), SHORT)
async def test_a_page_looks_right(
    look: Look, page: str, theme: str, width: str, locale: str
) -> None:
    await look(page, theme, width, locale)


@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("theme", "width", "locale"), ALL)
async def test_every_page_looks_right_in_every_way(
    look: Look, page: str, theme: str, width: str, locale: str
) -> None:
    await look(page, theme, width, locale)


async def test_the_login_page_is_accessible(browser: Browser, center: RunningCenter) -> None:
    async with window(browser, center.url) as found:
        await found.open("/login")
        assert await found.axe() == []
        assert found.faults == []


async def test_reading_works_without_scripts(
    browser: Browser, center: RunningCenter, session: StorageState
) -> None:
    options = {"java_script_enabled": False, "storage_state": session}
    async with window(browser, center.url, **options) as found:
        await found.open("/overview")
        await found.page.click(".side a[href='/runs']")
        await found.page.click("td a[href='/runs/shown']")
        assert await found.page.inner_text("h1") == "shown"
        await found.page.click(".tabs a[href$='tab=settings']")
        assert "host_concurrency" in await found.page.inner_text("main")
