"""Pictures of the portal from a real crawl, for README and docs: `python -m tools.screenshots DIR`.

A center, an agent and the bundled site run in this process and its children; Chromium opens the
pages. Nothing outlives the command.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random
from typing import Any

from playwright.async_api import Browser

from skep.embed.demo_center import DemoCenter
from skep.model.run import AskedSettings
from skep.runtime.clock import SystemClock
from skep.testing.grounds.chromium import chromium, window
from skep.wire.api.runs import OpenRun

PAGES, LATENCY = 3000, 0.05
#: Seconds of the crawl before the first picture, so that charts have points.
CRAWL = 45.0
WIDE, PHONE = {"width": 1360, "height": 860}, {"width": 390, "height": 844}
#: Name of the file -> path, options of the window.
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview-light": ("/overview?range=15m", {"viewport": WIDE, "color_scheme": "light"}),
    "overview-dark": ("/overview?range=15m", {"viewport": WIDE, "color_scheme": "dark"}),
    "overview-chinese": ("/overview", {"viewport": WIDE, "locale": "zh-CN"}),
    "overview-phone": ("/overview", {"viewport": PHONE}),
    "jobs": ("/jobs", {"viewport": WIDE}),
    "runs": ("/runs", {"viewport": WIDE}),
    "run": ("/runs/quotes", {"viewport": WIDE}),
    "run-charts": ("/runs/quotes?tab=charts&range=15m", {"viewport": WIDE}),
    "run-dark": ("/runs/quotes", {"viewport": WIDE, "color_scheme": "dark"}),
}


async def main(folder: Path) -> None:
    clock, rng = SystemClock(), Random(1)  # noqa: S311 - names, no secrets
    async with DemoCenter(None, clock, rng) as stage:
        site = await stage.start_site(PAGES, LATENCY)
        await stage.start_agent()
        await _fill(stage, site)
        await clock.sleep(CRAWL)
        async with chromium() as browser:
            for name, (path, options) in PICTURES.items():
                link = await stage.center.login_link()
                await _picture(
                    browser, stage.center.url, link, path, folder / f"{name}.png", options
                )
                print(folder / f"{name}.png")  # noqa: T201 - says what was made


async def _fill(stage: DemoCenter, site: str) -> None:
    """Runs that work, wait and fail, and jobs with schedules."""
    api = stage.client.api
    slow = AskedSettings(host_delay=0.02, block_size=20)
    await stage.submit("quotes", [f"{site}/page/{n}" for n in range(PAGES)], slow)
    gone = [f"http://127.0.0.1:9/feed/{n}" for n in range(30)]
    await stage.submit("news-feeds", gone, AskedSettings())
    await stage.submit("sitemaps", [f"{site}/page/{n}" for n in range(200)], AskedSettings())
    await api.runs.open("shop-prices", OpenRun())
    await api.queue.submit("shop-prices", [f"{site}/page/{n}" for n in range(40)])
    await api.runs.change("shop-prices", "pause")
    for name, cron in (("registry-de", "0 * * * *"), ("sitemaps-daily", "*/10 * * * *")):
        job = {"name": name, "requests": [f"{site}/page/1"], "schedule": {"cron": cron}}
        await api.jobs.put(
            name, {**job, "labels": {"team": "data"}, "note": "kept by the data team"}
        )


async def _picture(
    browser: Browser, url: str, link: str, path: str, target: Path, options: dict[str, Any]
) -> None:
    async with window(browser, url, **options) as found:
        await found.page.goto(link)
        await found.page.wait_for_url("**/overview")
        await found.open(path)
        await found.page.locator(".side b:not(:empty)").first.wait_for(state="attached")
        await found.page.screenshot(path=target)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(target))
