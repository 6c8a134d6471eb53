"""Placement when things break: real centers, agents and spiders (faults 2, 16, 17, 19, 20)."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.store.sql.schema.requests import attempts, requests
from skep.testing.faultproxy import TO_CALLER, TO_SERVER, FaultProxy
from skep.testing.fleet import Fleet, tell
from skep.testing.processes import QUICK

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "8"}
#: What a busy machine may add to any time that is measured here.
SLACK = 8.0
SPIDER = """
import skep


class Pages(skep.Spider):
    url: str = ""
    settings = {"block_size": 5, "placement": %s}

    def start(self):
        for number in range(6):
            yield f"{self.url}/page/{number}"

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all()
"""


async def spider(fleet: Fleet, placement: dict[str, Any], url: str = "") -> Process:
    """`skep run` against the fleet's center, as a process; the run is called `crawl`."""
    (fleet.folder / "spiders.py").write_text(SPIDER % placement)
    token = fleet.center.folder / "admin.token"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    words = ["run", "spiders.py", "-a", f"url={fleet.site.url}", "--run", "crawl"]
    where = ["--center", url or fleet.center.url, "--token-file", str(token)]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep", *words, *where),
        cwd=fleet.folder,
        env={**kept, **QUICK},
        stdout=PIPE,
        stderr=STDOUT,
    )


async def ended(process: Process, seconds: float = 60.0) -> tuple[int, str]:
    """Its exit code, and what it said."""
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def view_of(fleet: Fleet, run: str = "crawl") -> dict[str, Any]:
    view: dict[str, Any] = await fleet.client.api.call("GET", f"/api/v1/runs/{run}", None, dict)
    return view


async def done_of(fleet: Fleet) -> int:
    try:
        return int((await view_of(fleet))["ledger"]["done"])
    except Exception:  # noqa: BLE001 - it is not there yet
        return 0


async def chosen(fleet: Fleet) -> list[str]:
    return [seat["agent"] for seat in (await view_of(fleet))["chosen"] if not seat["until"]]


def strays(store_url: str) -> tuple[int, int]:
    """(requests that belong to an agent, those of them that another one fetched)."""
    engine = sa.create_engine(store_url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.connect() as connection:
            both = sa.select(requests.c.place, attempts.c.agent)
            both = both.join(attempts, attempts.c.request == requests.c.id)
            rows = connection.execute(both.where(requests.c.place.not_in(["", ">"]))).all()
            return len(rows), sum(row.place != row.agent for row in rows)
    finally:
        engine.dispose()


async def test_pages_of_a_chain_stay_with_their_agent(tmp_path: Path) -> None:
    """C6: a real spider over three agents; no agent downloads what another one found."""
    async with Fleet(tmp_path, pages=300) as fleet:
        await asyncio.gather(*(fleet.agent(name, FEW_AT_ONCE) for name in ("a", "b", "c")))
        code, said = await ended(await spider(fleet, {"strategy": "chained", "n": 3}))
        figures = (await view_of(fleet))["figures"]
        belonging, astray = await asyncio.to_thread(strays, fleet.center.store_url)
    tell("C6", belonging=belonging, astray=astray, agents=len(figures["agents"]))
    assert code == 0, said
    assert belonging > 200
    assert astray == 0
    assert len(figures["agents"]) >= 2, "six first requests, each to a random agent"


@pytest.mark.parametrize(
    ("alive_after", "policy", "patience"),
    [
        pytest.param(11.0, "stop", 0.0, id="stop, as shipped", marks=pytest.mark.slow),
        pytest.param(2.0, "wait", 2.0, id="wait"),
        pytest.param(2.0, "stop", 60.0, id="stop, quick"),
    ],
)
async def test_a_sticky_agent_is_killed(
    tmp_path: Path, alive_after: float, policy: str, patience: float
) -> None:
    """Faults 16 and 19: decided within `alive_after` + the timeout; the spider ends and says
    which agent is gone, instead of waiting 900 s for answers."""
    env = {"SKEP_CENTER_ALIVE_AFTER": str(alive_after)}
    asked = {"strategy": "chained", "n": 1, "when_gone": policy, "patience": patience}
    async with Fleet(tmp_path, env, pages=2000, latency=0.05) as fleet:
        agents = await asyncio.gather(*(fleet.agent(name, FEW_AT_ONCE) for name in ("a", "b")))
        process = await spider(fleet, asked)
        await fleet.wait_for(lambda: _at_least(fleet, 30))
        (name,) = await chosen(fleet)
        victim = next(agent for agent in agents if agent.id == name)
        await asyncio.to_thread(victim.kill)
        killed = time.monotonic()
        code, said = await ended(process)
        took = time.monotonic() - killed
        view = await view_of(fleet)
    timeout = patience if policy == "wait" else 0.0
    tell("16, 19", policy=policy, alive_after=alive_after, timeout=timeout, decided_after=took)
    assert view["run"]["state"] == "failed", view
    assert f"agent {name} is gone" in view["run"]["reason"]
    assert view["unaccounted"] == 0
    assert code == 1, said
    assert f"agent {name} is gone" in said
    assert took <= alive_after + timeout + SLACK


async def _at_least(fleet: Fleet, count: int) -> bool:
    return await done_of(fleet) >= count


async def test_chains_of_a_killed_agent_begin_again(tmp_path: Path) -> None:
    """Fault 16, policy restart: another agent takes over from the first requests on, and the
    whole site is fetched."""
    asked = {"strategy": "chained", "n": 1, "when_gone": "restart"}
    async with Fleet(tmp_path, pages=300, latency=0.03) as fleet:
        agents = await asyncio.gather(*(fleet.agent(name, FEW_AT_ONCE) for name in ("a", "b")))
        process = await spider(fleet, asked)
        await fleet.wait_for(lambda: _at_least(fleet, 40))
        (name,) = await chosen(fleet)
        victim = next(agent for agent in agents if agent.id == name)
        await asyncio.to_thread(victim.kill)
        code, said = await ended(process)
        view = await view_of(fleet)
        pages = {path for path in fleet.site.hits if path.startswith("/page/")}
        now = await chosen(fleet)
    ledger = view["ledger"]
    tell("16", policy="restart", pages=len(pages), done=ledger["done"], dead=ledger["dead"])
    assert code == 0, said
    assert now != [name]
    assert len(pages) == 300
    assert (ledger["dead"], view["unaccounted"]) == (0, 0)


async def test_fixed_agents_lose_one_and_the_others_go_on(tmp_path: Path) -> None:
    """Fault 17: 1 of 3 fixed agents is killed; nothing is lost, nothing more goes to it."""
    async with Fleet(tmp_path, pages=400, latency=0.05) as fleet:
        names = ("a", "b", "c")
        agents = await asyncio.gather(*(fleet.agent(name, FEW_AT_ONCE) for name in names))
        process = await spider(fleet, {"strategy": "fixed", "n": 3})
        await fleet.wait_for(lambda: _at_least(fleet, 50))
        await asyncio.to_thread(agents[0].kill)
        code, said = await ended(process)
        view = await view_of(fleet)
        assert fleet.blocks_of(agents[0]) == 0
    pages = {path for path in fleet.site.hits if path.startswith("/page/")}
    tell("17", strategy="fixed", done=view["ledger"]["done"], pages=len(pages))
    assert code == 0, said
    assert len(pages) == 400
    assert view["unaccounted"] == 0


async def test_chains_over_two_centers_of_which_one_dies(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """C6, C9, fault 15: chosen by one center, leased by the other, which knows the same."""
    async with Fleet(tmp_path, shared, pages=400, latency=0.03) as fleet:
        second = await fleet.another_center("second")
        urls = [fleet.center.url, second.url]
        for name in ("a", "b", "c"):
            await fleet.agent(name, FEW_AT_ONCE, urls[::-1])
        await fleet.reach(second, fleet.center)
        process = await spider(fleet, {"strategy": "chained", "n": 2}, ",".join(urls))
        await fleet.wait_for(lambda: _at_least(fleet, 60))
        await asyncio.to_thread(fleet.center.kill)
        await fleet.wait_for(lambda: _at_least(fleet, 150))
        await asyncio.to_thread(fleet.center.start)
        code, said = await ended(process)
        view = await view_of(fleet)
        belonging, astray = await asyncio.to_thread(strays, fleet.center.store_url)
    used = set(view["figures"]["agents"])
    tell("15", strategy="chained", belonging=belonging, astray=astray, agents=len(used))
    assert code == 0, said
    assert used <= {seat["agent"] for seat in view["chosen"]}
    assert (view["ledger"]["done"], astray, view["unaccounted"]) == (400, 0, 0)


@pytest.mark.parametrize("agents", [0, 1])
async def test_a_spider_that_cannot_have_its_agents(tmp_path: Path, agents: int) -> None:
    """Fault 20: 0 agents, and 1 of 3 wanted: the message names the shortfall, exit code 1."""
    env = {"SKEP_CENTER_ALLOCATE_WAIT": "0.5"}
    async with Fleet(tmp_path, env) as fleet:
        for number in range(agents):
            await fleet.agent(str(number))
        code, said = await ended(await spider(fleet, {"strategy": "fixed", "n": 3}))
        runs = await fleet.client.api.call("GET", "/api/v1/runs", None, dict)
    tell("20", wanted=3, there=agents, exit_code=code)
    assert code == 1, said
    assert f"3 agents are needed and {agents} of {agents} can be had" in said
    assert "crawl" not in {run["id"] for run in runs["items"]}


async def test_an_allocation_whose_answer_is_lost_is_made_once(tmp_path: Path) -> None:
    """Fault 2: the calls that open the run are cut, before and after the center did it."""
    async with Fleet(tmp_path, pages=60) as fleet, FaultProxy(fleet.center.port) as proxy:
        await asyncio.gather(*(fleet.agent(name, FEW_AT_ONCE) for name in ("a", "b", "c")))
        proxy.cut(TO_SERVER, after=100, when=b"/requestqueue/crawl/driver", times=2)
        proxy.cut(TO_CALLER, when=b"/requestqueue/crawl/driver", times=3)
        process = await spider(fleet, {"strategy": "fixed", "n": 1}, proxy.url)
        code, said = await ended(process)
        view = await view_of(fleet)
        struck = proxy.struck
    tell("2", calls_cut=struck, allocations=1, agents=len(view["chosen"]))
    assert code == 0, said
    assert struck >= 3
    assert len(view["chosen"]) == len(view["figures"]["agents"]) == 1
