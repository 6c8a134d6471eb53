"""Pause, continue, restart and stop reach every process of a run, and each says so (R2).

Every loop that looks by itself is made slow here: what arrives soon was pushed. With two centers
the first supervises the run, and every command is given to the second.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from skep.model.states import RunState
from skep.testing.fleet import tell
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import ENDLESS_GENERATOR, ENDLESS_SPIDER, local_agent
from skep.testing.grounds.slowdown import slowdown
from skep.testing.polling import until
from skep.testing.servers import Postgres
from skep.testing.site import DemoSite

#: What R2 allows, in seconds on a machine that does nothing else; the pollers take far longer.
SOON = 2.0
#: How many times longer it may take on a machine that other tests keep busy.
BUSY = 5.0
WAIT = 40
SLOW: dict[str, Any] = {
    "egress_allow": ["127.0.0.0/8"],
    "center_heartbeat_every": 20.0,
    "center_alive_after": 60.0,
    "center_sweep_every": 30.0,
    "jobs_keep_every": 30.0,
    "jobs_lease_seconds": 120.0,
}


class Ground:
    """One or two centers, an agent at the first, a site."""

    def __init__(self, centers: Sequence[RunningCenter], site: DemoSite) -> None:
        self.first = centers[0]
        self.last = centers[-1]
        self.site = site
        self.longest = 0.0
        #: Of a machine that other tests share, when it was too busy for what R2 allows.
        self.slowdown = 1.0

    async def job(self, name: str, **document: Any) -> str:
        """Kept, and its run started at the first center."""
        put = await self.first.admin.put(f"/api/v1/jobs/{name}", {"name": name, **document})
        assert put.status == 200, put.content
        run: str = (await self.first.admin.post(f"/api/v1/jobs/{name}/run")).json()["run"]
        return run

    async def word(self, path: str) -> list[dict[str, Any]]:
        """Given to the last center; every process that it reached, and all have acknowledged."""
        answer = (await self.last.admin.post(f"/api/v1/{path}?wait={WAIT}")).json()
        reached: list[dict[str, Any]] = answer["reached"]
        assert all(one["obeyed"] for one in reached), reached
        seconds = [one["seconds"] for one in reached]
        self.longest = max([self.longest, *seconds])
        if max(seconds, default=0.0) >= SOON:  # as on no idle machine: how busy is this one?
            self.slowdown = max(self.slowdown, await asyncio.to_thread(slowdown))
        return reached

    def check_times(self, who: str, **more: Any) -> None:
        """Every word was obeyed within what R2 allows."""
        tell(f"R2 {who}", longest=self.longest, slowdown=self.slowdown, **more)
        assert self.longest < SOON * min(self.slowdown, BUSY)

    async def more_hits(self, count: int = 10) -> None:
        wanted = sum(self.site.hits.values()) + count
        await until(lambda: sum(self.site.hits.values()) >= wanted, seconds=60)

    def child(self, run: str) -> int:
        found = self.first.services.jobs.supervisor.children.get(run)
        return found.pid if found else 0


@asynccontextmanager
async def grounded(
    folder: Path, spiders: Path, count: int, shared: dict[str, Any]
) -> AsyncIterator[Ground]:
    (spiders / "endless.py").write_text(ENDLESS_SPIDER)
    async with AsyncExitStack() as stack:
        centers = []
        for number in range(count):
            # The second center keeps no runs: words must travel.
            flags = {**SLOW, **shared, "jobs_folder": str(spiders)}
            flags |= {"jobs_runs_limit": 100 if number == 0 else 0}
            running = running_center(folder / f"c{number}", **flags)
            centers.append(await stack.enter_async_context(running))
        await stack.enter_async_context(local_agent(centers[0]))
        site = await stack.enter_async_context(DemoSite(pages=50, latency=0.02))
        yield Ground(centers, site)


@pytest.fixture(params=["one", "two"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    spiders = tmp_path / "spiders"
    spiders.mkdir()
    shared: dict[str, Any] = {}
    if request.param == "two":
        postgres: Postgres = request.getfixturevalue("postgres_server")
        shared = {
            "store_url": postgres.fresh_database(),
            "bus_url": request.getfixturevalue("redis_url"),
            "archive_url": str(tmp_path / "archive"),
        }
    count = 2 if shared else 1
    async with grounded(tmp_path, spiders, count, shared) as found:
        yield found


def kinds(reached: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(one["kind"] for one in reached)


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
async def test_agents_and_the_spider_that_a_center_keeps(ground: Ground, rounds: int) -> None:
    """R2, E11: by message to the job's name, within 2 s; the process ends, comes back, and is
    another."""
    spider = {"path": "endless.py", "arguments": {"url": ground.site.url}}
    run = await ground.job("endless", spider=spider)
    await ground.more_hits()
    for _ in range(rounds):
        before = ground.child(run)
        reached = await ground.word("jobs/endless/pause")
        assert "spider" in kinds(reached), reached
        assert not ground.child(run)
        assert not psutil.pid_exists(before)
        hits = sum(ground.site.hits.values())
        assert kinds(await ground.word("jobs/endless/resume")) == ["spider"]
        await ground.more_hits()
        assert sum(ground.site.hits.values()) > hits
        assert ground.child(run) not in {0, before}
    assert kinds(await ground.word(f"runs/{run}/restart")) == ["spider"]
    last = await ground.word("jobs/endless/stop")
    assert "spider" in kinds(last)
    ground.check_times("spider", rounds=rounds)


async def test_a_restart_of_a_job_ends_one_spider_and_begins_another(ground: Ground) -> None:
    """R2: restart; the answer names both."""
    spider = {"path": "endless.py", "arguments": {"url": ground.site.url}}
    run = await ground.job("endless", spider=spider)
    await ground.more_hits()
    # At the first center, which is the one that may keep runs here.
    answer = await ground.first.admin.post(f"/api/v1/jobs/endless/restart?wait={WAIT}")
    moved = answer.json()
    spiders = [one for one in moved["reached"] if one["kind"] == "spider"]
    assert [one["run"] for one in spiders] == [run, moved["started"]]
    assert all(one["obeyed"] for one in moved["reached"]), moved["reached"]
    assert ground.child(moved["started"])
    assert not ground.child(run)


async def test_generators_end_and_begin_again(ground: Ground) -> None:
    """R2: their processes are gone when the word was obeyed."""
    run = await ground.job("many", generators=[{"kind": "python", "code": ENDLESS_GENERATOR}])
    store = ground.first.services.store
    await until(
        lambda: store.generations.of(run),
        lambda found: any(one.taken for one in found),
        seconds=60,
    )
    reached = await ground.word("jobs/many/pause")
    assert "generators" in kinds(reached)
    (generation,) = await store.generations.of(run)
    assert "generators" in kinds(await ground.word("jobs/many/resume"))
    await until(
        lambda: store.generations.of(run),
        lambda found: found[0].starts != generation.starts,
        seconds=60,
    )
    assert "generators" in kinds(await ground.word("jobs/many/stop"))
    ground.check_times("generators")


async def test_a_spider_that_is_driven_elsewhere(ground: Ground, tmp_path: Path) -> None:
    """R2: `skep run --center` on another machine hears every word in the read it waits in."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.spiders", str(tmp_path / "spiders" / "endless.py")),
        *("--data", str(ground.first.folder), "-a", f"url={ground.site.url}"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await ground.more_hits()
        for verb in ("pause", "continue", "restart", "pause", "continue", "cancel"):
            reached = await ground.word(f"runs/endless/{verb}")
            (spider,) = [one for one in reached if one["kind"] == "spider"]
            assert spider["name"] == "elsewhere", (verb, reached)
            if verb == "continue":
                await ground.more_hits()
        async with asyncio.timeout(60):
            assert await process.wait() == 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    ground.check_times("elsewhere")


async def test_a_paused_run_starts_nothing_and_a_stopped_one_lets_go(ground: Ground) -> None:
    """R2: what has begun may end when a run is paused, and is dropped when it is stopped."""
    ground.site.latency = 0.5
    await ground.first.open_run("web", block_size=50, host_concurrency=4)
    await ground.first.put("web", [{"uri": url} for url in ground.site.page_urls()])
    await ground.more_hits(4)
    assert kinds(await ground.word("runs/web/pause")) == ["agent"]
    hits = sum(ground.site.hits.values())
    ledger = await until(
        lambda: ground.first.ledger("web"), lambda ledger: not ledger.leased, seconds=60
    )
    assert ledger.done + ledger.queued == 50
    assert ledger.done <= hits + 4, "only what was on its way to the site may come to it"
    await ground.word("runs/web/continue")
    await ground.more_hits(2)
    assert kinds(await ground.word("runs/web/cancel")) == ["agent"]
    hits = sum(ground.site.hits.values())
    await until(lambda: ground.first.ledger("web"), lambda ledger: not ledger.open, seconds=60)
    assert sum(ground.site.hits.values()) == hits
    assert (await ground.first.ledger("web")).cancelled > 0
    ground.check_times("agents")


async def test_a_finished_run_returns_what_has_not_started(ground: Ground) -> None:
    """E1: an ended run does not keep an agent from the others; started downloads complete."""
    ground.site.latency = 0.5
    await ground.first.open_run("web", block_size=50, host_concurrency=4)
    await ground.first.put("web", [{"uri": url} for url in ground.site.page_urls()])
    await ground.more_hits(4)
    assert kinds(await ground.word("runs/web/finish")) == ["agent"]
    hits = sum(ground.site.hits.values())
    ledger = await until(
        lambda: ground.first.ledger("web"), lambda ledger: not ledger.open, seconds=60
    )
    assert ledger.done + ledger.cancelled == 50
    assert 0 < ledger.done <= hits + 4


async def test_a_run_without_processes(tmp_path: Path) -> None:
    """A run without processes answers at once, however long the caller would wait."""
    async with running_center(tmp_path / "data") as center:
        await center.open_run("web")
        answer = (await center.admin.post(f"/api/v1/runs/web/pause?wait={WAIT}")).json()
    assert (answer["run"]["state"], answer["reached"]) == ("paused", [])


async def test_the_driver_of_a_failed_run_is_not_waited_for(tmp_path: Path) -> None:
    """R2: it ended with its run, for example because its agent was gone."""
    async with running_center(tmp_path / "data") as center:
        opened = await center.admin.post("/requestqueue/web/driver", {"patience": 600})
        assert opened.status == 200, opened.content
        store, now = center.services.store, center.services.clock.now()
        await store.runs.move("web", RunState.FAILED, "its agent is gone", now)
        answer = (await center.admin.post(f"/api/v1/runs/web/continue?wait={WAIT}")).json()
        assert (answer["run"]["state"], answer["reached"]) == ("running", [])
