"""Jobs from document to run: a real center, a real agent, real spiders as child processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from skep.center.http.authentication import Role
from skep.testing.grounds.centers import Answer, Caller, RunningCenter, running_center
from skep.testing.grounds.jobs import fired, local_agent, until_found
from skep.testing.site import DemoSite

EXAMPLES = Path(__file__).parents[3] / "examples"
SECONDS = 60.0
QUICK: dict[str, Any] = {
    "egress_allow": ["127.0.0.0/8"],
    "jobs_keep_every": 0.05,
    "jobs_restart_first": 0.05,
    "jobs_lease_seconds": 2.0,
    "jobs_folder": str(EXAMPLES),
}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path / "data", **QUICK) as running, local_agent(running):
        yield running


async def hits(site: DemoSite, count: int) -> None:
    """The site was asked so often."""
    await until_found(lambda: asyncio.sleep(0, sum(site.hits.values()) >= count))


async def applied(center: RunningCenter, name: str, **document: Any) -> Any:
    return (await center.admin.put(f"/api/v1/jobs/{name}", {"name": name, **document})).json()


async def job_run(center: RunningCenter, run: str) -> Any:
    return await center.services.store.job_runs.get(run)


async def closed(center: RunningCenter, run: str) -> Any:
    async def look() -> Any:
        row = await job_run(center, run)
        return row if row and not row.open else None

    return await until_found(look)


async def state_of(center: RunningCenter, run: str) -> str:
    state: str = (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]["state"]
    return state


def child(center: RunningCenter, run: str) -> int:
    """The number of the spider's process; 0 when none runs."""
    found = center.services.jobs.supervisor.children.get(run)
    return found.pid if found else 0


async def child_of(center: RunningCenter, run: str, other_than: int = 0) -> int:
    """The number of the process, as soon as there is one."""

    async def look() -> int:
        pid = child(center, run)
        return 0 if pid == other_than else pid

    pid: int = await until_found(look)
    return pid


def spider(site: DemoSite, **more: Any) -> dict[str, Any]:
    arguments = {"start_urls": f"{site.url}/"}
    return {"path": "demo_pages.py:DemoPages", "arguments": arguments, **more}


async def items_of(center: RunningCenter, run: str) -> list[Any]:
    answer = await center.admin.get(f"/api/v1/runs/{run}/items?limit=10000")
    items: list[Any] = answer.json()["items"]
    return items


async def test_a_job_of_requests_finishes_by_itself(center: RunningCenter) -> None:
    """D1, C8: from the document to the end of its run, without another word."""
    async with DemoSite(pages=10) as site:
        urls = site.page_urls()
        more = {"kind": "list", "uris": [urls[0], *urls[5:]], "priority": 1}
        settings = {"retries": 1, "cookie": "a=b"}
        put = await applied(
            center, "ten", requests=urls[:5], generators=[more], priority=2, settings=settings
        )
        assert (put["what"], put["revision"]) == ("created", 1)
        run = await fired(center, "ten")
        row = await closed(center, run)
    assert row.outcome == "finished: 10 done, 0 dead, 0 cancelled"
    view = (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]
    assert (view["state"], view["job"]) == ("finished", "ten")
    assert (view["settings"]["priority"], view["settings"]["retries"]) == (2, 1)
    assert view["settings"]["headers"] == {"Cookie": "a=b"}
    assert (await center.ledger(run)).done == 10


async def test_the_same_key_is_the_same_run(center: RunningCenter) -> None:
    """C8: an external scheduler may fire twice; only one run comes of it."""
    async with DemoSite(pages=3) as site:
        await applied(center, "j", requests=site.page_urls())
        runs = await asyncio.gather(*(fired(center, "j", "2026-11-16") for _ in range(8)))
        assert len(set(runs)) == 1
        await closed(center, runs[0])
        assert await fired(center, "j", "2026-11-16") == runs[0], "also when it is over"
        other = await fired(center, "j", "2026-11-17")
        third = await fired(center, "j")
        assert len({runs[0], other, third}) == 3
        for run in (other, third):
            await closed(center, run)


async def test_every_fault_is_told_and_nothing_is_kept(center: RunningCenter) -> None:
    """D1: what is invalid is not stored and leaves a row that people can read."""
    document = {
        "name": "bad",
        "settings": {"retries": -1, "tmie_limit": 3},
        "downloader": {"kind": "cobol", "code": "x"},
        "requests": ["http://ok/", "nonsense"],
        "schedule": "61 * * * *",
        "spider": "../outside.py",
    }
    answer = await center.admin.put("/api/v1/jobs/bad", document)
    problem = answer.problem()
    assert (answer.status, problem.code) == (400, "invalid_job")
    paths = {line.partition(": ")[0] for line in problem.detail.splitlines()}
    assert paths >= {
        "settings.retries",
        "settings.tmie_limit",
        "downloader.kind",
        "requests[1]",
        "schedule.cron",
        "spider.path",
        "spider",
    }
    assert (await center.admin.get("/api/v1/jobs/bad")).problem().code == "unknown_job"
    (alert,) = (await center.admin.get("/api/v1/alerts")).json()["items"]
    assert (alert["kind"], alert["subject"]) == ("job_invalid", "bad")
    assert "settings.retries" in alert["detail"]


async def test_a_stale_edit_is_refused(center: RunningCenter) -> None:
    await applied(center, "j", requests=["http://a/"])
    await applied(center, "j", requests=["http://b/"], revision=1)
    late = {"requests": ["http://c/"], "revision": 1}
    assert (await center.admin.put("/api/v1/jobs/j", late)).problem().code == "conflict"
    headers = {"If-Match": '"1"', "Content-Type": "application/json"}
    answer = await center.admin.send(
        "PUT", "/api/v1/jobs/j", b'{"requests":["http://c/"]}', headers
    )
    assert answer.problem().code == "conflict"
    tried = await center.admin.put("/api/v1/jobs/j?dry_run=true", {"requests": ["http://c/"]})
    assert tried.json()["what"] == "changed"
    assert "+- http://c/" in tried.json()["diff"]
    diff = (await center.admin.get("/api/v1/jobs/j/diff")).json()["diff"]
    assert "-- http://a/\n+- http://b/" in diff
    lines = (await center.admin.get("/api/v1/jobs/j/revisions")).json()["items"]
    assert [(line["revision"], line["what"]) for line in lines] == [(2, "changed"), (1, "created")]


async def test_a_job_that_is_off_or_deleted_does_not_run(center: RunningCenter) -> None:
    """P3: enabled, deleted (soft)."""
    await applied(center, "j", requests=["http://a/"], enabled=False)
    refused = await center.admin.post("/api/v1/jobs/j/run")
    assert (refused.status, "disabled" in refused.problem().detail) == (409, True)
    gone = await center.admin.send("DELETE", "/api/v1/jobs/j?author=zoe")
    assert (gone.json()["deleted"], gone.json()["author"]) == (True, "zoe (admin)")
    assert (await center.admin.get("/api/v1/jobs")).json()["items"] == []
    assert "deleted" in (await center.admin.post("/api/v1/jobs/j/run")).problem().detail
    assert (await applied(center, "j", requests=["http://a/"]))["revision"] == 3


async def test_viewers_see_no_passwords(center: RunningCenter) -> None:
    settings = {"cookie": "key=s3cret", "headers": {"Authorization": "s3cret", "X-A": "b"}}
    sinks = ["postgresql://user:s3cret@db/x?table=t"]
    await applied(center, "j", spider="demo_pages.py", settings=settings, sinks=sinks)
    viewer = await center.caller(Role.VIEWER)
    for path in ("/api/v1/jobs/j", "/api/v1/jobs"):
        assert b"s3cret" in (await center.admin.get(path)).content
        assert b"s3cret" not in (await viewer.get(path)).content
    assert (await viewer.get("/api/v1/jobs/j/diff?old=0")).status == 403


async def test_a_spider_job_runs_in_a_child(center: RunningCenter) -> None:
    """R1: a crawl job with arguments, named by its path; its items go to the job's sinks."""
    out = center.folder / "items" / "crawl" / "pages.jsonl"
    async with DemoSite(pages=30) as site:
        await applied(
            center,
            "crawl",
            spider=spider(site),
            sinks=["jsonl:crawl/pages.jsonl"],
            settings={"retries": 4},
        )
        run = await fired(center, "crawl")
        row = await closed(center, run)
    assert (row.outcome, row.starts) == ("finished: 31 done, 0 dead, 0 cancelled", 1)
    assert "finished: every request has ended" in row.log
    assert (center.folder / "runs" / f"{run}.log").read_text().endswith(row.log)
    assert len(out.read_text().splitlines()) == len(await items_of(center, run)) == 30
    settings = (await center.admin.get(f"/api/v1/runs/{run}")).json()["run"]["settings"]
    assert settings["retries"] == 4, "what the job says wins over what the spider says"
    assert settings["host_concurrency"] == 16


async def test_a_spider_that_is_killed_goes_on(center: RunningCenter) -> None:
    """Fault: kill -9 of the child; nothing is lost and nothing is counted twice."""
    async with DemoSite(pages=200, latency=0.03) as site:
        await applied(center, "crawl", spider=spider(site))
        run = await fired(center, "crawl")
        for count in (20, 60, 100):
            await hits(site, count)
            pid = await child_of(center, run)
            os.kill(pid, signal.SIGKILL)
            await child_of(center, run, other_than=pid)
        site.latency = 0.0
        row = await closed(center, run)
    assert (row.starts, row.outcome) == (4, "finished: 201 done, 0 dead, 0 cancelled")
    items = await items_of(center, run)
    assert len({item["data"]["url"] for item in items}) == len(items) == 200


async def test_pause_resume_and_stop_by_the_jobs_name(center: RunningCenter) -> None:
    """R2: by message to the job's name; a paused run has no process."""
    async with DemoSite(pages=300, latency=0.05) as site:
        await applied(center, "crawl", spider=spider(site))
        run = await fired(center, "crawl")
        await hits(site, 20)
        paused = (await center.admin.post("/api/v1/jobs/crawl/pause")).json()
        assert [moved["id"] for moved in paused["runs"]] == [run]
        await until_found(lambda: asyncio.sleep(0, not child(center, run)))
        assert await state_of(center, run) == "paused"
        resumed = await center.admin.post("/api/v1/jobs/crawl/resume")
        assert resumed.status == 200, resumed.content
        await child_of(center, run)
        restarted = (await center.admin.post("/api/v1/jobs/crawl/restart")).json()
        assert (await closed(center, run)).outcome.startswith("cancelled: ")
        await center.admin.post("/api/v1/jobs/crawl/stop")
        await closed(center, restarted["started"])
        again = await center.admin.post("/api/v1/jobs/crawl/stop")
        assert (again.status, again.problem().code) == (409, "conflict")
    assert not center.services.jobs.supervisor.children


async def test_a_spider_that_cannot_start_rests_with_its_reason(center: RunningCenter) -> None:
    await applied(center, "broken", spider="no_such.module:Spider")
    run = await fired(center, "broken")

    async def rests() -> bool:
        return await state_of(center, run) in {"paused", "failed"}

    await until_found(rests)
    await until_found(lambda: asyncio.sleep(0, not child(center, run)))
    row = await until_found(lambda: job_run(center, run))
    assert (row.starts, "there is no module" in row.log) == (1, True), row
    alerts = (await center.admin.get("/api/v1/alerts")).json()["items"]
    assert any(a["kind"] == "job_failed" and "no module" in a["detail"] for a in alerts)


async def test_a_driver_may_drive_its_run_and_nothing_else(center: RunningCenter) -> None:
    """Faults 50, 65: the token of a spider's process opens the door of its run only."""
    await applied(center, "j", requests=["http://127.0.0.1:9/"])
    driver: Caller = await center.caller(Role.DRIVER, "mine")
    opened = await driver.post("/requestqueue/mine/driver", {"job": "x"})
    assert opened.status == 200, opened.content
    assert (await driver.get("/api/v1/runs/mine")).status == 200

    async def refused(answer: Awaitable[Answer]) -> bool:
        return (await answer).status == 403

    assert await refused(driver.post("/requestqueue/other/driver", {"job": "x"}))
    assert await refused(driver.get("/api/v1/runs/other"))
    assert await refused(driver.get("/api/v1/runs"))
    assert await refused(driver.get("/api/v1/jobs/j"))
    assert await refused(driver.post("/api/v1/jobs/j/run"))
    assert await refused(driver.post("/requestqueue/mine", ["http://a/"]))
    assert await refused(driver.put("/api/v1/runs/mine", {}))


@pytest.fixture
async def own_center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """A center whose folder for jobs lies beside its data; the test writes the spiders."""
    flags = {**QUICK, "jobs_folder": str(tmp_path)}
    async with running_center(tmp_path / "data", **flags) as running:
        yield running


def written(center: RunningCenter, body: str) -> str:
    file = center.folder.parent / "own.py"
    head = "import os, signal, skep\n\n\nclass Own(skep.Spider):\n    start_urls = ['http://127.0.0.1:9/']\n\n"
    file.write_text(f"{head}    def opened(self):\n        {body}\n")
    return file.name


async def failed(center: RunningCenter, run: str) -> Any:
    """The row of a run that rests because it failed."""

    async def look() -> bool:
        if await state_of(center, run) != "failed" or child(center, run):
            return False
        # The spider says itself that it failed; its center writes down how, after that.
        row = await job_run(center, run)
        return bool(row.log or row.outcome)

    await until_found(look)
    return await job_run(center, run)


async def test_a_spider_that_always_crashes_is_given_up(own_center: RunningCenter) -> None:
    """Restarted after a crash, later each time, and not without limit."""
    body = "os.kill(os.getpid(), signal.SIGKILL) or os.abort()"
    path = written(own_center, body)
    await applied(own_center, "crash", spider={"path": path, "restarts": 2})
    row = await failed(own_center, await fired(own_center, "crash"))
    assert (row.open, row.starts) == (True, 3)
    assert row.outcome.startswith("its spider ended with ")
    written(own_center, "pass")
    assert (await own_center.admin.post("/api/v1/jobs/crash/resume")).status == 200
    await child_of(own_center, row.run)
    assert (await own_center.admin.post("/api/v1/jobs/crash/stop")).status == 200
    await closed(own_center, row.run)


@pytest.mark.needs("bwrap")
async def test_a_spider_sees_no_secret_of_its_center(own_center: RunningCenter) -> None:
    """The admin's token, the store and the environment are not for the code of users."""
    data = str(own_center.folder)
    body = f"raise ValueError(os.listdir({data!r}) + sorted(n for n in os.environ if 'SKEP' in n))"
    await applied(own_center, "spy", spider=written(own_center, body))
    row = await failed(own_center, await fired(own_center, "spy"))
    assert "ValueError([])" in row.log, row.log


async def test_a_run_that_takes_too_long_is_stopped(own_center: RunningCenter) -> None:
    """Job-level time limit; no agent is there that could do the request."""
    settings = {"run_time_limit": 0.3}
    await applied(own_center, "slow", requests=["http://127.0.0.1:9/"], settings=settings)
    run = await fired(own_center, "slow")
    assert (await closed(own_center, run)).outcome == "cancelled: 0 done, 0 dead, 1 cancelled"
    view = (await own_center.admin.get(f"/api/v1/runs/{run}")).json()["run"]
    assert "run_time_limit of 0.3 s" in view["reason"]


async def test_a_job_has_a_back_off_of_its_own(tmp_path: Path) -> None:
    """D5: the center would wait for an hour, this job for a moment."""
    slow = {**QUICK, "lanes_retry_first": 3600.0, "lanes_retry_cap": 3600.0}
    async with running_center(tmp_path / "data", **slow) as center:
        settings = {"retries": 1, "backoff_first": 0.05, "backoff_cap": 0.1}
        await applied(center, "again", requests=["http://a.test/"], settings=settings)
        run = await fired(center, "again")
        agent = center.hand_agent()
        await agent.register()
        for _ in range(2):
            (block,) = await agent.lease(wait=30)
            await agent.finish(block, "network", 0)
        row = await closed(center, run)
    assert row.outcome == "finished: 0 done, 1 dead, 0 cancelled"
