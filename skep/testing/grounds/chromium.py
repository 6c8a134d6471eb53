"""Debian's Chromium for tests of pages: one browser for a session, a fresh window for each test.

A window notes everything that a page must not do: errors on the console, uncaught exceptions,
reports of the content policy, and calls to any other server.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright

from skep.testing.grounds.browsers import PASSWORD
from skep.testing.private import ServerMissing

#: Without the network and the services of a desktop browser.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = {"phone": 390, "tablet": 900, "wide": 1360}
#: Rules that pages must meet: WCAG 2.1, levels A and AA, and good practice.
_AXE = "() => axe.run(document, {resultTypes: ['violations']})"


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Raises ServerMissing when it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        raise ServerMissing("chromium", "chromium")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(slots=True)
class Window:
    """A window of a user, and what it must not have done."""

    context: BrowserContext
    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        await self.page.goto(self.url + path)

    async def log_in(self, user: str) -> None:
        """With the form, as a user does."""
        await self.open("/login")
        form = self.page.locator("section.login form").first
        await form.locator("input[name=user]").fill(user)
        await form.locator("input[name=password]").fill(PASSWORD)
        await form.locator("button").click()
        await self.page.wait_for_url("**/overview")

    async def axe(self) -> list[str]:
        """Violations of accessibility rules, each with its first element."""
        await self.page.evaluate(_axe_source())
        found = await self.page.evaluate(_AXE)
        return [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
        ]

    async def width_of_content(self) -> int:
        found: int = await self.page.evaluate("document.documentElement.scrollWidth")
        return found


def _axe_source() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


@asynccontextmanager
async def window(browser: Browser, url: str, **options: Any) -> AsyncIterator[Window]:
    """A window with nothing in it: no cookies, no cache."""
    chosen = {"viewport": {"width": WIDTHS["wide"], "height": 860}, "locale": "en-US", **options}
    context = await browser.new_context(**chosen)
    try:
        made = Window(context, await context.new_page(), url)
        _note(made)
        yield made
    finally:
        await context.close()


def _note(made: Window) -> None:
    def asked(request: Request) -> None:
        if not request.url.startswith((made.url, "data:", "blob:")):
            made.faults.append(f"called {request.url[:200]}")

    made.page.on(
        "console",
        lambda said: (
            made.faults.append(f"{said.type}: {said.text}")
            if said.type in {"error", "warning"}
            else None
        ),
    )
    made.page.on("pageerror", lambda error: made.faults.append(f"exception: {error}"))
    made.page.on("request", asked)
