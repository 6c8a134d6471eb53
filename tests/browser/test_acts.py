"""What pages do with scripts: login by link, acts, live changes, keys, palette, bulk. P4."""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Dialog, Route, StorageState, expect

from skep.model.logs import LogSource, LogSourceKind
from skep.testing.grounds.browsers import PASSWORD, add_user
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.chromium import Window, window
from skep.testing.polling import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.needs("chromium"),
]


#: Loads older lines until there are no more, scrolls through all of them, and counts.
SCROLL = """async () => {
  const entry = document.querySelector('script[src*=portal]').src;
  const { LogView } = await import(entry.replace('portal.', 'log.'));
  const place = document.querySelector('.log');
  const view = new LogView(place);
  view.older = 'filter=x&cursor=y';
  view.newer = '';
  view.start();
  let nodes = 0;
  while (view.older) await view.load();
  for (let at = 0; at <= 100; at++) {
    place.scrollTop = at / 100 * place.scrollHeight;
    await new Promise(requestAnimationFrame);
    nodes = Math.max(nodes, place.querySelectorAll('*').length);
  }
  return { lines: view.lines.length, nodes };
}"""


async def state_of(center: RunningCenter, run: str) -> str:
    found: str = (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]["state"]
    return found


async def test_a_login_link_opens_the_portal(browser: Browser, center: RunningCenter) -> None:
    await add_user(center, "by-link", "viewer")
    made = (await center.admin.post("/api/v1/users/by-link/link")).json()
    async with window(browser, center.url) as found:
        await found.page.goto(made["url"])
        await found.page.wait_for_url("**/overview")
        assert "#" not in found.page.url
        assert found.faults == []


async def test_an_act_is_done_once_and_shown_in_place(center: RunningCenter, admin: Window) -> None:
    await center.open_run("clicked")
    await center.put("clicked", ["http://a.test/1"])
    page = admin.page
    calls: list[str] = []
    page.on("request", lambda one: calls.append(one.url) if one.method == "POST" else None)
    await admin.open("/runs/clicked")
    await page.locator("button", has_text="Pause").dblclick()
    await expect(page.locator("#run-state")).to_have_text("paused")
    assert await state_of(center, "clicked") == "paused"
    assert len([one for one in calls if one.endswith("/pause")]) == 1
    assert await page.locator(".toast").count() == 1


async def test_an_act_that_destroys_asks_first(center: RunningCenter, admin: Window) -> None:
    await center.open_run("asked")
    page = admin.page
    await admin.open("/runs/asked")
    await page.locator("summary", has_text="Cancel").click()
    assert await state_of(center, "asked") == "running"
    await page.locator(".ask[open] button", has_text="Cancel").click()
    await expect(page.locator("#run-state")).to_have_text("cancelled")
    assert await state_of(center, "asked") == "cancelled"


async def test_a_change_elsewhere_shows_without_a_reload(
    center: RunningCenter, admin: Window
) -> None:
    """Typed text, selection and the place on the page stay."""
    await center.open_run("moving")
    page = admin.page
    await admin.open("/runs?filter=id%3Amoving*")
    await page.locator('tr[data-key="moving"] input').check()
    await page.fill("#filter", "id:moving* half typed")
    await page.evaluate("window.same = true")
    await center.admin.post("/api/v1/runs/moving/pause")
    await expect(page.locator('tr[data-key="moving"] .state')).to_have_text("paused")
    await center.open_run("moving-2")
    await expect(page.locator("[data-new-rows]")).to_have_text("1 new")
    assert await page.locator('tr[data-key="moving-2"]').count() == 0
    assert await page.input_value("#filter") == "id:moving* half typed"
    assert await page.locator('tr[data-key="moving"] input').is_checked()
    await page.locator("[data-new-rows]").click()
    await expect(page.locator('tr[data-key="moving-2"]')).to_have_count(1)
    assert await page.locator('tr[data-key="moving"] input').is_checked()
    assert await page.evaluate("window.same") is True


async def test_updates_can_be_paused(center: RunningCenter, admin: Window) -> None:
    await center.open_run("still")
    page = admin.page
    await admin.open("/runs/still")
    await page.locator("[data-pause]").click()
    read: list[str] = []
    page.on("request", lambda one: read.append(one.url))
    await center.admin.post("/api/v1/runs/still/pause")
    await expect(page.locator("[data-pause]")).to_have_text("paused")
    await page.locator("[data-pause]").click()
    await expect(page.locator("#run-state")).to_have_text("paused")
    assert [one for one in read if one.endswith("/runs/still")]


async def test_two_tabs_share_one_stream(center: RunningCenter, admin: Window) -> None:
    await admin.open("/overview")
    other = await admin.context.new_page()
    await other.goto(f"{admin.url}/runs")
    await expect(other.locator("[data-pause]")).to_have_text("live")
    streams = center.services.live.limits.open
    third = await admin.context.new_page()
    await third.goto(f"{admin.url}/jobs")
    await expect(third.locator("[data-pause]")).to_have_text("live")
    assert center.services.live.limits.open <= streams


async def test_a_session_that_ends_loses_nothing(browser: Browser, center: RunningCenter) -> None:
    await add_user(center, "expires", "operator")
    await center.open_run("kept-open")
    async with window(browser, center.url) as found:
        await found.log_in("expires")
        page = found.page
        await found.open("/runs/kept-open")
        await page.locator("[data-pause]").click()
        for one in (await center.admin.get("/api/v1/sessions?user=expires")).json()["items"]:
            await center.admin.send("DELETE", f"/api/v1/sessions/{one['id']}")
        await found.context.clear_cookies()
        await page.locator("#acts button", has_text="Pause").click()
        again = page.locator("#login-again")
        await expect(again).to_be_visible()
        await again.locator("input[name=user]").fill("expires")
        await again.locator("input[name=password]").fill(PASSWORD)
        await again.locator("button").click()
        await expect(page.locator("#run-state")).to_have_text("paused")
        assert await state_of(center, "kept-open") == "paused"


async def test_bulk_shows_its_plan_then_its_progress(center: RunningCenter, admin: Window) -> None:
    for name in ("bulk-1", "bulk-2", "bulk-3"):
        await center.open_run(name)
    page = admin.page
    await admin.open("/runs?filter=id%3Abulk-*")
    await page.locator('tr[data-key="bulk-1"] input').check()
    await page.locator('input[name=scope][value="all"]').check()
    await page.locator(".bulk-bar button", has_text="Pause").click()
    plan = page.locator("#ask")
    await expect(plan.locator("h1")).to_have_text("Pause: 3 match")
    await plan.locator("button.primary").click()
    await page.wait_for_url("**/operations/*")
    await expect(page.locator("#operation-state")).to_have_text("done")
    assert await state_of(center, "bulk-2") == "paused"


async def test_keys_lead_everywhere(admin: Window) -> None:
    page = admin.page
    await admin.open("/overview")
    await page.keyboard.press("g")
    await page.keyboard.press("r")
    await page.wait_for_url("**/runs")
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.id") == "filter"
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.locator(".bulk-bar")).to_be_visible()
    assert await page.locator("tr.at input:checked").count() == 1
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()


async def test_the_palette_finds_a_run(admin: Window) -> None:
    page = admin.page
    await admin.open("/overview")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("shown")
    await expect(page.locator("#palette-list li").first).to_contain_text("shown")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/runs/shown")


async def test_the_palette_offers_the_acts_of_the_page(
    center: RunningCenter, admin: Window
) -> None:
    await center.open_run("by-palette")
    page = admin.page
    await admin.open("/runs/by-palette")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("pause")
    await expect(page.locator("#palette-list li").first).to_contain_text("Pause")
    await page.keyboard.press("Enter")
    await expect(page.locator("#run-state")).to_have_text("paused")


async def test_a_log_of_100000_lines_scrolls(center: RunningCenter, admin: Window) -> None:
    """At most 3,000 elements are in the page, however long the log is."""
    source = LogSource(LogSourceKind.SPIDER, "spider", "shown", "")
    for at in range(50):
        center.services.logs.wrote(source, 1, f"line {at}")
    page, asked = admin.page, 0

    async def written() -> bool:
        await admin.open("/runs/shown?tab=log")
        return await page.locator(".log .line").count() > 0

    async def older(route: Route) -> None:
        nonlocal asked
        asked += 1
        lines = [
            {"time": "12:00:00", "exact": "", "level": "info", "source": "s", "text": f"old {n}"}
            for n in range(10_000)
        ]
        rest = "filter=x&cursor=y" if asked < 10 else ""
        await route.fulfill(json={"lines": lines, "older": rest, "newer": ""})

    await until(written)
    await page.route("**/lines?*", older)
    found = await page.evaluate(SCROLL)
    assert found["lines"] >= 100_000
    assert found["nodes"] <= 3000


async def test_the_filter_completes(admin: Window) -> None:
    page = admin.page
    await admin.open("/runs")
    await page.click("#filter")
    await page.keyboard.type("sta")
    await expect(page.locator("#suggestions li").first).to_contain_text("state:")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("#suggestions li").first).to_contain_text("running")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    assert await page.input_value("#filter") == "state:running"


async def test_the_menu_of_a_phone_is_a_sheet(
    browser: Browser, center: RunningCenter, session: StorageState
) -> None:
    options = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
    async with window(browser, center.url, **options, storage_state=session) as found:
        await found.open("/overview")
        await expect(found.page.locator(".side")).to_be_hidden()
        await found.page.locator(".menu").tap()
        await expect(found.page.locator(".side")).to_be_visible()
        await found.page.locator(".side a[href='/runs']").tap()
        await found.page.wait_for_url("**/runs")
        assert found.faults == []


async def test_hostile_values_run_nothing(
    browser: Browser, center: RunningCenter, session: StorageState
) -> None:
    """Executions: 0."""
    payloads = (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "<svg onload=alert(1)>",
        "javascript:alert(1)",
        "</script><script>alert(1)</script>",
    )
    for at, text in enumerate(payloads):
        job = {"name": f"hostile-{at}", "note": text, "requests": ["http://a.test/"]}
        await center.admin.put(f"/api/v1/jobs/hostile-{at}", job)
        services = center.services
        await services.store.alerts.raise_("test", text, text, services.clock.now())
    ran: list[str] = []

    async def told(dialog: Dialog) -> None:
        ran.append(dialog.message)
        await dialog.dismiss()

    async with window(browser, center.url, storage_state=session) as found:
        found.page.on("dialog", told)
        for text in payloads:
            await found.open(f"/jobs?filter={text}")
            await found.open(f"/runs/{text.replace('/', '%2F')}")
        await found.open("/overview")
        await found.open("/jobs")
        await found.page.keyboard.press("Control+k")
        await found.page.keyboard.type("hostile")
        await expect(found.page.locator("#palette-list li").first).to_contain_text("hostile")
    assert ran == []


async def test_a_center_that_restarts_costs_a_reconnect(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The open page says that it reconnects, and goes on by itself with the same session."""
    folder = tmp_path_factory.mktemp("restarted")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running_center(folder))
        port, url = urlsplit(first.url).port, first.url
        await add_user(first, "stays", "admin")
        await first.open_run("outlives")
        found = await stack.enter_async_context(window(browser, url))
        await found.log_in("stays")
        await found.open("/runs/outlives")
        sign = found.page.locator("[data-pause]")
        await expect(sign).to_have_text("live")
        await first.local.stop()
        await expect(sign).to_have_text("reconnecting", timeout=15_000)
        again = await stack.enter_async_context(running_center(folder, center_port=port))
        await again.admin.post("/api/v1/runs/outlives/pause")
        await expect(found.page.locator("#run-state")).to_have_text("paused", timeout=15_000)
        await expect(sign).to_have_text("live", timeout=15_000)


async def test_two_people_see_what_the_other_does(
    browser: Browser, center: RunningCenter, admin: Window
) -> None:
    await center.open_run("seen-by-both")
    await center.put("seen-by-both", ["http://a.test/1"])
    async with window(browser, center.url) as other:
        await other.log_in("looker")
        await other.open("/runs/seen-by-both")
        await admin.open("/runs/seen-by-both")
        await admin.page.locator("#acts button", has_text="Pause").click()
        await expect(other.page.locator("#run-state")).to_have_text("paused")
        assert await other.page.locator("#acts button").count() == 0, "a viewer cannot act"
