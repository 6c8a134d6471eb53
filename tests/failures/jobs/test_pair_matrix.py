"""Fault 77: every part fails in every way under every kind of work (issue: the pair matrix).

5 parts x 3 acts x 5 kinds of work = 75 combinations, from lists. One cluster per part; in it
each act strikes once while the kinds of work go on side by side. `make faults` runs all of them
with the shipped settings and 20 s; `make test` a pairwise selection with short leases and a
fault that still outlasts every one of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import asyncio as aioredis

from skep.errors import SkepError
from skep.jobs.runs.delivery_writer import BATCH
from skep.testing import polling, servers
from skep.testing.faulted_cluster import ACTS, PARTS, FaultedCluster
from skep.testing.fleet import tell
from skep.testing.grounds.pairwise import all_combinations, pairs_of, pairwise
from skep.testing.site import DemoSite

pytestmark = pytest.mark.needs("bwrap")

LOADS = ("idle", "spider", "schedule", "application", "by_hand")
#: Pages of a spider and of a run by hand, for each second of a fault: work for longer than that.
PAGES, REQUESTS = 25, 60
LATENCY = 0.3
SHORT = {
    "SKEP_JOBS_KEEP_EVERY": "0.2",
    "SKEP_JOBS_LEASE_SECONDS": "3",
    "SKEP_JOBS_RESTART_FIRST": "0.2",
    "SKEP_AGENT_CONCURRENCY": "8",
}
#: As shipped: nothing of what tests usually hurry.
SHIPPED = {
    "SKEP_CENTER_ALIVE_AFTER": "11",
    "SKEP_CENTER_HEARTBEAT_EVERY": "3",
    "SKEP_CENTER_SWEEP_EVERY": "1",
    "SKEP_LANES_LEASE_SECONDS": "30",
    "SKEP_LANES_RECONCILE_EVERY": "5",
    "SKEP_AGENT_REPORT_EVERY": "1",
    "SKEP_AGENT_LEASE_WAIT": "20",
    "SKEP_AGENT_CONCURRENCY": "8",
}
SPIDER = """
import skep


class Pages(skep.Spider):
    name = "pages"
    url: str = ""
    count: int = 0
    settings = {"block_size": 5, "host_concurrency": 8, "retries": 5}

    def start(self):
        for number in range(int(self.count)):
            yield f"{self.url}/page/{number}"

    def parse(self, response):
        yield {"url": response.url}
"""
TICKER = "#!/bin/sh\nwhile true; do echo tick; sleep 0.5; done\n"
#: How often something is looked at, and how long it may take after a fault.
STEP = 0.1
PATIENCE = 150.0


class Work:
    """The kinds of work in one cluster, each under a name of its own per act."""

    def __init__(
        self, cluster: FaultedCluster, site: DemoSite, sink: str, folder: Path, seconds: float
    ) -> None:
        self.cluster = cluster
        self.site = site
        self.sink = sink
        self.folder = folder
        self.pages = int(PAGES * seconds)
        self.requests = int(REQUESTS * seconds)

    async def prepare(self) -> None:
        (self.folder / "pages.py").write_text(SPIDER)
        tool = self.folder / "ticker"
        tool.mkdir()
        (tool / "tick.sh").write_text(TICKER)
        (tool / "tick.sh").chmod(0o755)

    # -- idle: nothing runs during the fault; afterwards a page gets through

    async def start_idle(self, act: str) -> None:
        """Nothing."""

    async def check_idle(self, act: str) -> None:
        name = f"idle-{act}"
        await self._submit(name, 5)
        await self._until_all_done(name, 5)

    # -- a spider job with a sink

    async def start_spider(self, act: str) -> None:
        arguments = {"url": self.site.url, "count": self.pages}
        spider = {"path": "pages.py", "arguments": arguments}
        job = {"spider": spider, "sinks": [f"{self.sink}?list={act}"]}
        await self.cluster.call("PUT", f"/api/v1/jobs/spider-{act}", job)
        await self.cluster.call("POST", f"/api/v1/jobs/spider-{act}/run")
        await until(lambda: self._items_of(act, 5))

    async def check_spider(self, act: str) -> None:
        view = await until(lambda: self._job_ended(f"spider-{act}"))
        assert view["outcome"].startswith(f"finished: {self.pages} done, 0 dead"), view
        await until(lambda: self._items_of(act, self.pages))
        found = await self._items(act)
        assert len(set(found)) == self.pages
        assert len(found) - self.pages <= BATCH, f"{len(found)} items in the sink"

    async def _items(self, act: str) -> list[str]:
        client = aioredis.Redis.from_url(self.sink)
        try:
            return [json.loads(line)["url"] for line in await client.lrange(act, 0, -1)]
        finally:
            await client.aclose()

    async def _items_of(self, act: str, count: int) -> bool:
        return len(set(await self._items(act))) >= count

    async def _job_ended(self, job: str) -> Any:
        (row, *_) = (await self.cluster.call("GET", f"/api/v1/jobs/{job}"))["runs"]
        return None if row["open"] else row

    # -- a schedule of runs that are placed

    async def start_schedule(self, act: str) -> None:
        often = {"every": 2, "overlap": "parallel", "catch_up": "all", "grace": 600}
        job = {**self._placed(act), "schedule": often}
        await self.cluster.call("PUT", f"/api/v1/jobs/schedule-{act}", job)
        await until(lambda: self._fires(act, 2))

    def _placed(self, act: str) -> dict[str, Any]:
        return {
            "requests": [f"{self.site.url}/page/1?{act}"],
            "settings": {"retries": 5},
            "placement": {"strategy": "fixed", "n": 1},
        }

    async def check_schedule(self, act: str) -> None:
        name = f"schedule-{act}"
        before = len((await self._fires(act, 1)) or [])
        await until(lambda: self._fires(act, before + 2))
        await self.cluster.call("PUT", f"/api/v1/jobs/{name}", self._placed(act))
        await until(lambda: self._fires_ended(act))
        fires = await self._fires(act, 1)
        bad = [fire for fire in fires if fire["state"] not in {"fired", "late"}]
        assert not bad, json.dumps(bad)
        due = sorted(fire["due_at"] for fire in fires)
        assert due == list(range(due[0], due[-1] + 1, 2)), "a due time is missing"
        for fire in fires:
            await until(partial(self._run_is, fire["run"], "finished"))

    async def _fires(self, act: str, count: int) -> Any:
        path = f"/api/v1/jobs/schedule-{act}/fires?limit=500"
        found = (await self.cluster.call("GET", path))["items"]
        return found if len(found) >= count else None

    async def _fires_ended(self, act: str) -> bool:
        return all(fire["state"] != "claimed" for fire in await self._fires(act, 1))

    async def _run_is(self, run: str, state: str) -> bool:
        found = (await self.cluster.call("GET", f"/api/v1/runs/{run}"))["run"]["state"]
        assert found != "failed", f"run {run} failed"
        return bool(found == state)

    # -- an application

    async def start_application(self, act: str) -> None:
        app = {"package": "ticker", "command": ["./tick.sh"], "restart": "always"}
        await self.cluster.call("PUT", f"/api/v1/jobs/application-{act}", {"app": app})
        await self.cluster.call("POST", f"/api/v1/jobs/application-{act}/run")
        await until(lambda: self._runs_on(act))

    async def check_application(self, act: str) -> None:
        await until(lambda: self._runs_on(act))
        run = await self._app_run(act)
        assert await self._run_is(run, "running")
        await self.cluster.call("POST", f"/api/v1/runs/{run}/cancel")
        await until(lambda: self._run_is(run, "cancelled"))

    async def _app_run(self, act: str) -> str:
        (row, *_) = (await self.cluster.call("GET", f"/api/v1/jobs/application-{act}"))["runs"]
        return str(row["run"])

    async def _runs_on(self, act: str) -> str:
        """The agent that has it."""
        run = await self._app_run(act)
        found = (await self.cluster.call("GET", f"/api/v1/runs/{run}/instances"))["items"]
        having = [one["instance"] for one in found if one["instance"]["state"] == "running"]
        return str(having[0]["agent"]) if having else ""

    # -- a run that a person started

    async def start_by_hand(self, act: str) -> None:
        await self._submit(f"hand-{act}", self.requests)
        await until(lambda: self._done(f"hand-{act}", 5))

    async def check_by_hand(self, act: str) -> None:
        await self._until_all_done(f"hand-{act}", self.requests)

    async def _submit(self, run: str, count: int) -> None:
        settings = {"block_size": 5, "host_concurrency": 8, "retries": 5}
        await self.cluster.call("PUT", f"/api/v1/runs/{run}", {"settings": settings})
        pages = [{"uri": f"{self.site.url}/page/{number}?{run}"} for number in range(count)]
        client = self.cluster.client
        await until(lambda: client.call("POST", f"/requestqueue/{run}", pages, dict))

    async def _done(self, run: str, count: int) -> bool:
        found = await self.cluster.call("GET", f"/api/v1/runs/{run}")
        return bool(found["ledger"]["done"] >= count)

    async def _until_all_done(self, run: str, count: int) -> None:
        await until(lambda: self._done(run, count))
        ledger = (await self.cluster.call("GET", f"/api/v1/runs/{run}"))["ledger"]
        assert (ledger["accepted"], ledger["done"]) == (count, count), ledger


#: A center may be away: its errors are no answer.
until = partial(polling.until, seconds=PATIENCE, step=STEP, despite=(SkepError,))


def in_order(part: str, loads: set[str]) -> list[str]:
    """What shall be struck is started last, so that it is still there."""
    return sorted(loads, key=lambda load: (load == part, LOADS.index(load)))


async def victim(work: Work, part: str, act: str, loads: set[str]) -> int:
    """Which center or agent: the one that has the most to lose."""
    if part in {"center", "spider"} and work.cluster.spiders():
        return work.cluster.spiders()[0][0]
    if part == "agent" and "application" in loads:
        agent = await work._runs_on(act)
        return [one.id for one in work.cluster.agents].index(agent)
    return 0


async def try_part(
    tmp_path: Path,
    sink: str,
    part: str,
    chosen: dict[str, set[str]],
    env: dict[str, str],
    seconds: float,
    down: float,
) -> None:
    """Every act on one part, with its kinds of work; each combination is told."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    failed: list[str] = []
    settings = {**env, "SKEP_JOBS_FOLDER": str(folder)}
    async with (
        DemoSite(pages=int((PAGES + REQUESTS) * seconds), latency=LATENCY) as site,
        FaultedCluster(tmp_path / "cluster", settings, down=down) as cluster,
    ):
        work = Work(cluster, site, sink, folder, seconds)
        await work.prepare()
        for act, loads in chosen.items():
            began = time.monotonic()
            broken = await outcome_of(strike(work, part, act, loads, seconds))
            for load in filter(loads.__contains__, LOADS):
                said = broken or await outcome_of(getattr(work, f"check_{load}")(act))
                if said:
                    failed.append(f"{part} {act} {load}: {said}")
                took, result = time.monotonic() - began, "failed" if said else "passed"
                tell("77", pair=f"{part}/{act}/{load}", result=result, seconds=took)
    tell("77", combinations=sum(map(len, chosen.values())), failed=len(failed))
    assert not failed, "\n".join(failed)


async def strike(work: Work, part: str, act: str, loads: set[str], seconds: float) -> None:
    """Start the kinds of work, then strike; the part is well again when this returns."""
    for load in in_order(part, loads):
        await getattr(work, f"start_{load}")(act)
    if part == "spider" and "spider" not in loads:  # there must be one to strike
        await work.start_spider(f"victim-{act}")
    number = await victim(work, part, act, loads)
    await work.cluster.strike(part, act, number, seconds)


async def outcome_of(work: Awaitable[None]) -> str:
    """What went wrong, or ""."""
    try:
        await work
    except (AssertionError, SkepError, TimeoutError) as error:
        return str(error) or type(error).__name__
    return ""


def selected(part: str) -> dict[str, set[str]]:
    """act -> kinds of work, such that every pair of values of the matrix occurs."""
    chosen: dict[str, set[str]] = {act: set() for act in ACTS}
    for one, act, load in pairwise(PARTS, ACTS, LOADS):
        if one == part:
            chosen[act].add(load)
    return chosen


def test_the_selection_has_every_pair() -> None:
    """All 75 combinations are tried part by part; every pair of values in `make test` too."""
    everything = all_combinations(PARTS, ACTS, LOADS)
    tried = [(part, act, load) for part in PARTS for act in ACTS for load in LOADS]
    assert tried == everything
    assert len(set(everything)) == 75
    chosen = [
        (part, act, load)
        for part in PARTS
        for act, loads in selected(part).items()
        for load in loads
    ]
    assert set().union(*map(pairs_of, chosen)) == set().union(*map(pairs_of, everything))


@pytest.mark.parametrize("part", PARTS)
async def test_pairwise_with_short_leases(
    tmp_path: Path, redis_server: servers.Redis, part: str
) -> None:
    """Fault 77: nothing lost, no run failed, sinks exact up to one batch."""
    sink = redis_server.fresh_database()
    await try_part(tmp_path, sink, part, selected(part), SHORT, seconds=5.0, down=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
async def test_every_combination_as_shipped(
    tmp_path: Path, redis_server: servers.Redis, part: str
) -> None:
    """Fault 77: all 75 combinations, 20 s each; a killed part is started again after 5 s."""
    chosen = {act: set(LOADS) for act in ACTS}
    sink = redis_server.fresh_database()
    await try_part(tmp_path, sink, part, chosen, SHIPPED, seconds=20.0, down=5.0)
