"""One center with something in it and one Chromium, shared by all tests of a process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, StorageState, expect

from skep.testing.grounds.browsers import add_user
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.chromium import Window, chromium, window


def pytest_configure(config: pytest.Config) -> None:
    expect.set_options(timeout=20_000)  # a busy machine is not a finding
    config.addinivalue_line("markers", "matrix: every combination; runs in `make browser` only")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    """Two runs, three jobs, an alert, and users `admin2` and `looker`."""
    async with running_center(tmp_path_factory.mktemp("center")) as running:
        await add_user(running, "admin2", "admin")
        await add_user(running, "looker", "viewer")
        await running.archive_pages(4, "shown")
        await running.open_run("waits")
        await running.put("waits", [f"http://b.test/{n}" for n in range(5)])
        for name in ("shop-prices", "news", "registry"):
            job = {"name": name, "requests": ["http://a.test/"], "labels": {"team": "a"}}
            await running.admin.put(f"/api/v1/jobs/{name}", job)
        services = running.services
        now = services.clock.now()
        await services.store.alerts.raise_("agent_dead", "home-2", "home-2 is silent", now)
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session(browser: Browser, center: RunningCenter) -> StorageState:
    """The cookies of `admin2`, who logged in once for all tests."""
    async with window(browser, center.url) as found:
        await found.log_in("admin2")
        return await found.context.storage_state()


@pytest_asyncio.fixture(loop_scope="session")
async def admin(
    browser: Browser, center: RunningCenter, session: StorageState
) -> AsyncIterator[Window]:
    """A window of `admin2`; it must do nothing that is noted as a fault."""
    async with window(browser, center.url, storage_state=session) as found:
        yield found
        assert found.faults == []
