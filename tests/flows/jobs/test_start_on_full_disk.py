"""Jobs that are started while the disk is full: nothing hangs, and what was begun can be ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.center import disk_space
from skep.errors import DiskFull
from skep.jobs.generators import generator_intake
from skep.jobs.generators.sitemap_source import maps_run
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import fired, local_agent, until_found
from skep.testing.site import DemoSite

#: With and without a window in which a URI is fetched once.
JOBS: dict[str, dict[str, Any]] = {
    "plain": {"requests": ["http://example.org/1"]},
    "once": {"requests": ["http://example.org/1"], "settings": {"dedup": 60}},
}


@pytest.fixture
async def center(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningCenter]:
    monkeypatch.setattr(disk_space, "TRIAL_EVERY", 1e9)
    async with running_center(tmp_path / "data", jobs_keep_every=0.05) as running:
        yield running


async def begun_on_a_full_disk(center: RunningCenter, name: str) -> str:
    """The run that a refused start has begun."""
    document = {"name": name, **JOBS[name]}
    assert (await center.admin.put(f"/api/v1/jobs/{name}", document)).status < 300
    center.services.disk.heard(DiskFull("no room, a test says"))
    refused = await asyncio.wait_for(center.admin.post(f"/api/v1/jobs/{name}/run"), 10)
    assert refused.problem().code == "disk_full"
    (run,) = (await center.services.store.job_runs.going([name]))[name]
    return run


async def row(center: RunningCenter, run: str) -> Any:
    return await center.services.store.job_runs.get(run)


@pytest.mark.parametrize("name", JOBS)
async def test_a_run_that_waits_for_room_can_be_cancelled(center: RunningCenter, name: str) -> None:
    run = await begun_on_a_full_disk(center, name)
    assert (await center.admin.post(f"/api/v1/runs/{run}/cancel")).status < 300

    async def closed() -> bool:
        return not (await row(center, run)).open

    await until_found(closed)
    assert "cancelled" in (await row(center, run)).outcome


@pytest.mark.parametrize("name", JOBS)
async def test_it_goes_on_by_itself_when_there_is_room(center: RunningCenter, name: str) -> None:
    run = await begun_on_a_full_disk(center, name)
    center.services.disk.trouble = ""

    async def accepted() -> bool:
        return (await center.services.store.ledgers.read(run)).accepted == 1

    await until_found(accepted)


def lines_about(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [line for record in caplog.records if text in (line := record.getMessage())]


@pytest.mark.parametrize("name", JOBS)
async def test_the_supervisor_of_a_run_without_room_logs_it_once(
    center: RunningCenter,
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tries again with every step; the log has one line a minute, not one for each step."""
    run = await begun_on_a_full_disk(center, name)
    held = 0
    prepare = center.services.jobs.starts.prepare

    async def counted(*arguments: Any) -> None:
        nonlocal held
        held += 1
        await prepare(*arguments)

    monkeypatch.setattr(center.services.jobs.starts, "prepare", counted)

    async def often() -> bool:
        return held >= 5

    await until_found(often)
    assert len(lines_about(caplog, f"run {run} of job {name}: no room")) == 1
    center.services.disk.trouble = ""


async def test_a_generator_without_room_logs_it_once(
    center: RunningCenter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator_intake, "AGAIN_SECONDS", 0.01)
    part = {"kind": "list", "name": "some", "uris": ["http://example.org/1"]}
    await center.admin.put("/api/v1/jobs/j", {"name": "j", "generators": [part]})
    center.services.disk.heard(DiskFull("no room, a test says"))
    refused = 0
    accept = center.services.intake.accept_from

    async def counted(*arguments: Any) -> Any:
        nonlocal refused
        refused += 1
        return await accept(*arguments)

    monkeypatch.setattr(center.services.intake, "accept_from", counted)
    run = await fired(center, "j")

    async def often() -> bool:
        return refused >= 5

    await until_found(often)
    assert len(lines_about(caplog, f"run {run}: its generator waits: no room")) == 1
    center.services.disk.trouble = ""

    async def accepted() -> bool:
        return (await center.services.store.ledgers.read(run)).accepted == 1

    await until_found(accepted)


async def sitemap_without_room(center: RunningCenter, url: str) -> str:
    """A run whose sitemap cannot be put in, because the disk is full."""
    part = {"kind": "sitemap", "name": "map", "url": f"{url}/sitemap.xml"}
    answer = await center.admin.put("/api/v1/jobs/j", {"name": "j", "generators": [part]})
    assert answer.status == 200, answer.content
    center.services.disk.heard(DiskFull("no room, a test says"))
    run = await fired(center, "j")

    async def waits() -> bool:
        return bool(await center.services.store.runs.settings_of([maps_run(run, 0)]))

    await until_found(waits)
    return run


@pytest.mark.parametrize("way", ["jobs/j/stop", "runs/{run}/cancel"])
async def test_a_sitemap_that_waits_for_room_can_be_stopped(
    center: RunningCenter, way: str
) -> None:
    """Sitemap, disk full, stop: the run and the run of its sitemaps end, nothing is left open."""
    run = await sitemap_without_room(center, "http://127.0.0.1:9")
    assert (await center.admin.post(f"/api/v1/{way.format(run=run)}")).status < 300

    async def closed() -> bool:
        return not (await row(center, run)).open

    await until_found(closed)
    assert (await row(center, run)).outcome.startswith("cancelled")
    store = center.services.store
    assert (await store.runs.get(maps_run(run, 0))).state == "cancelled"
    assert (await center.ledger()).open == 0
    center.services.disk.trouble = ""
    await center.dispatched()
    assert (await center.ledger()).accepted == 0


async def test_a_sitemap_that_waits_for_room_survives_a_stop_of_its_center(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sitemap, disk full, stop of the center: the next one reads the sitemap, once."""
    monkeypatch.setattr(disk_space, "TRIAL_EVERY", 1e9)
    quick = {"jobs_keep_every": 0.05, "egress_allow": ["127.0.0.0/8"]}
    async with DemoSite(pages=20) as site:
        async with running_center(tmp_path / "data", **quick) as first:
            run = await sitemap_without_room(first, site.url)
            async with asyncio.timeout(10):
                await first.local.stop()
            first.planted = True  # it is closed: nothing can be checked
        async with running_center(tmp_path / "data", **quick) as second, local_agent(second):

            async def finished() -> bool:
                return (await second.services.store.runs.get(run)).state == "finished"

            await until_found(finished)
            ledger = await second.ledger(run)
            assert (ledger.accepted, ledger.done) == (20, 20)
        assert site.hits["/sitemap.xml"] == 1


async def test_a_sitemap_meets_a_full_disk_between_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sitemap is fetched, its pages find no room; the run is stopped and nothing hangs."""
    monkeypatch.setattr(disk_space, "TRIAL_EVERY", 1e9)
    quick = {"jobs_keep_every": 0.05, "egress_allow": ["127.0.0.0/8"]}
    async with (
        DemoSite(pages=20) as site,
        running_center(tmp_path / "data", **quick) as center,
        local_agent(center),
    ):
        services, reached = center.services, asyncio.Event()
        accept = services.intake.accept_from

        async def full_from_here(source: Any, name: str, offered: Any) -> Any:
            if not name.startswith("sitemaps-") and not reached.is_set():
                services.disk.heard(DiskFull("no room, a test says"))
                reached.set()
            return await accept(source, name, offered)

        monkeypatch.setattr(services.intake, "accept_from", full_from_here)
        part = {"kind": "sitemap", "name": "map", "url": f"{site.url}/sitemap.xml"}
        await center.admin.put("/api/v1/jobs/j", {"name": "j", "generators": [part]})
        run = await fired(center, "j")
        await asyncio.wait_for(reached.wait(), 30)
        assert (await center.admin.post("/api/v1/jobs/j/stop")).status == 200

        async def closed() -> bool:
            return not (await row(center, run)).open

        await until_found(closed)
        services.disk.trouble = ""
        assert (await center.ledger(run)).accepted == 0
        assert (await center.ledger()).open == 0
        again = await fired(center, "j")

        async def finished() -> bool:
            return (await services.store.runs.get(again)).state == "finished"

        await until_found(finished)
        assert (await center.ledger(again)).done == 20
