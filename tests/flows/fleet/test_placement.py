"""Placement with a real center and agents by hand: any, fixed, chained, hashed (C4 to C6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from skep.errors import NotEnoughAgents
from skep.model.fleet.agent import Vitals
from skep.model.fleet.placement import Placement
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.spiders.driving.http_queue import HttpQueue
from skep.testing.doubles.manual_agents import (
    PLACING,
    SITE,
    ManualAgent,
    agents_of,
    fill,
    joining,
    open_run,
)
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.wire.api.driver import START_DRIVER, NewDriver
from skep.wire.api.health import GET_VERSION
from skep.wire.api.jobs import CHANGE_JOB, RUN_JOB
from skep.wire.api.runs import OPEN_RUN, OpenRun
from skep.wire.client import CALL_SECONDS, CenterClient
from skep.wire.client.api import CenterApi
from skep.wire.client.transport import Answer, Request, Transport
from skep.wire.messages import Command


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Agents are dead after three seconds; no call waits for agents that do not come."""
    async with running_center(tmp_path, **PLACING) as running:
        yield running


@pytest.fixture
async def fleet(center: RunningCenter) -> AsyncIterator[Callable[..., Awaitable[ManualAgent]]]:
    async with joining(center) as join:
        yield join


async def test_fixed_agents_keep_the_run(center: RunningCenter, fleet: Any) -> None:
    """C4, C5: two of four are chosen, saved, told, and only they get its work."""
    hands = {name: await fleet(name) for name in ("a", "b", "c", "d")}
    assert (await open_run(center, "r", {"strategy": "fixed", "n": 2})).status == 200
    chosen = await agents_of(center, "r")
    assert len(chosen) == 2
    await fill(center, "r")
    others = [hands[name] for name in hands if name not in chosen]
    assert [await hand.lease() for hand in others] == [[], []]
    first = await hands[chosen[0]].lease(want=2)
    second = await hands[chosen[1]].lease(want=20)
    assert len(first) == len(second) == 2


async def test_opening_twice_allocates_once(center: RunningCenter, fleet: Any) -> None:
    """C4, fault 2: the run's name is the key; one row, the same agents, no orphans."""
    for name in ("a", "b", "c"):
        await fleet(name)
    asked = {"strategy": "fixed", "n": 1}
    answers = await asyncio.gather(*(open_run(center, "r", asked) for _ in range(8)))
    assert {answer.status for answer in answers} == {200}
    allocations = await center.services.store.allocations.open()
    assert [(one.run, len(one.agents)) for one in allocations] == [("r", 1)]


async def test_a_run_that_cannot_have_its_agents_does_not_start(
    center: RunningCenter, fleet: Any
) -> None:
    """C4, fault 20: the reason names the shortfall, and there is no run."""
    await fleet("a", group="eu")
    await fleet("b", group="us")
    answer = await open_run(center, "r", {"strategy": "fixed", "n": 3, "group": "eu"})
    problem = answer.problem()
    assert (problem.status, problem.code) == (409, "not_enough_agents")
    assert "3 agents are needed and 1 of 2 can be had" in problem.detail
    assert "b (group: it is in group us, not in eu)" in problem.detail
    assert (await center.admin.get("/api/v1/runs/r")).status == 404


async def test_a_starting_run_waits_for_its_agents(tmp_path: Path) -> None:
    """C4: it asks and waits; the agent comes in time."""
    async with running_center(tmp_path, center_allocate_wait=20.0) as center:
        asking = asyncio.create_task(open_run(center, "r", {"strategy": "fixed", "n": 1}))
        await asyncio.sleep(0.3)
        assert not asking.done()
        hand = await ManualAgent(center, "a").start()
        assert (await asking).status == 200
        assert await agents_of(center, "r") == ["a"]
        await hand.die()


async def test_a_starting_job_waits_for_its_agents(tmp_path: Path) -> None:
    """E3, C4: a job that is started by hand waits as a run does, and its key is not used up by
    a start that had no agents."""
    async with running_center(tmp_path, center_allocate_wait=20.0) as center:
        job = {"requests": ["http://a/"], "placement": {"strategy": "fixed", "n": 1}}
        assert (await center.admin.put("/api/v1/jobs/j", job)).status == 200
        asking = asyncio.create_task(center.admin.post("/api/v1/jobs/j/run"))
        await asyncio.sleep(0.3)
        assert not asking.done()
        hand = await ManualAgent(center, "a").start()
        answer = await asking
        assert await agents_of(center, answer.json()["run"]) == ["a"]
        await hand.die()


async def test_a_key_is_not_used_up_by_a_start_without_agents(center: RunningCenter) -> None:
    """E3: the same key starts the job once its agents are there."""
    job = {"requests": ["http://a/"], "placement": {"strategy": "fixed", "n": 1}}
    await center.admin.put("/api/v1/jobs/j", job)
    key = {"Idempotency-Key": "monday"}
    refused = await center.admin.send("POST", "/api/v1/jobs/j/run", headers=key)
    assert refused.problem().code == "not_enough_agents"
    assert (await center.admin.get("/api/v1/jobs/j")).json()["runs"] == []
    hand = await ManualAgent(center, "a").start()
    assert (await center.admin.send("POST", "/api/v1/jobs/j/run", headers=key)).status == 200
    await hand.die()


class Timed:
    """Asks the center for its version and notes how long any other call may take."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.seconds: list[float] = []

    async def send(self, request: Request, read: Callable[[Answer], Any]) -> Any:
        if request.path == GET_VERSION.path:
            return await self._transport.send(request, read)
        return self.seconds.append(request.seconds)

    def stream(self, request: Request) -> Any:
        raise AssertionError(request)


async def test_calls_that_start_a_run_last_as_long_as_the_center_waits(tmp_path: Path) -> None:
    """E8: `not_enough_agents` with the number needed, not a client that gave up first."""
    async with running_center(tmp_path, center_allocate_wait=20.0) as center:
        urls, rng = [center.url], Random(1)
        async with CenterClient(urls, center.admin.token, SystemClock(), rng) as client:
            timed = Timed(client.transport)
            api = CenterApi(timed)
            await api.runs.open("r", OpenRun())
            await api.driver.start("r", NewDriver())
            await api.jobs.run("j")
            await api.jobs.change("j", "restart")
            wait = (await api.health.version()).start_wait
            assert wait >= 20.0
            starting = (OPEN_RUN, START_DRIVER, RUN_JOB, CHANGE_JOB)
            assert timed.seconds == [route.seconds + wait for route in starting]


@pytest.mark.slow
async def test_a_spider_that_waits_longer_than_a_call_hears_why(tmp_path: Path) -> None:
    """E8: the recipe, with a wait just over the time of a usual call."""
    async with running_center(tmp_path, center_allocate_wait=CALL_SECONDS + 1) as center:
        urls, rng = [center.url], Random(1)
        async with CenterClient(urls, center.admin.token, SystemClock(), rng) as client:
            queue = HttpQueue(CenterApi(client.transport), "r", SystemClock(), rng)
            settings = RunSettings(placement=Placement("fixed", 3))
            with pytest.raises(NotEnoughAgents, match="3 agents are needed"):
                await queue.open("j", settings)


async def test_any_with_wishes_goes_to_those_who_fit(center: RunningCenter, fleet: Any) -> None:
    """C4, C5: group, system, labels and free memory; no agent is allocated, all that fit may."""
    fits = await fleet("fits", group="eu", os="Linux 6.1", labels={"site": "köln"})
    more = await fleet("more", group="eu", os="Linux", labels={"site": "köln", "x": "y"})
    poor = await fleet("poor", group="eu", os="Linux", labels={"site": "köln"})
    poor.vitals = Vitals(free_memory=2**20)
    other = await fleet("other", group="us", os="Linux", labels={"site": "köln"})
    wishes = {"group": "eu", "os": "linux", "labels": {"site": "köln"}, "memory": 100}
    assert (await open_run(center, "r", wishes)).status == 200
    await asyncio.sleep(0.5)
    await fill(center, "r")
    assert await other.lease() == []
    assert await poor.lease() == []
    assert len(await fits.lease(want=1)) == 1
    assert len(await more.lease()) == 3


async def test_a_run_without_agents_does_not_fill_the_lanes(
    center: RunningCenter, fleet: Any
) -> None:
    """C5: requests that no agent can take wait in the backlog; others go on."""
    await fleet("a", group="us")
    assert (await open_run(center, "r", {"group": "eu"})).status == 200
    await fill(center, "r", 50)
    ledger = await center.ledger("r")
    assert (ledger.waiting + ledger.delayed, ledger.queued) == (50, 0)
    late = await fleet("late", group="eu")
    blocks = await late.lease(wait=10.0)
    assert len(await late.uris(blocks)) >= 5


async def test_what_a_dead_agent_held_goes_to_the_others(center: RunningCenter, fleet: Any) -> None:
    """C6, fault 17: fixed agents; after the detection nothing is sent to the dead one."""
    a, b = await fleet("a"), await fleet("b")
    assert (await open_run(center, "r", {"strategy": "fixed", "n": 2})).status == 200
    await fill(center, "r", 10)
    held = await a.lease(want=1)
    await a.die()
    await until(lambda: _free(center, held[0].id))
    assert await a.lease() == []
    blocks = await b.lease(want=20, wait=5.0)
    blocks += await b.lease(want=20, wait=1.0)
    assert len(await b.uris(blocks)) == 10


async def _free(center: RunningCenter, block: int) -> bool:
    return (await center.services.store.blocks.get(block)).agent == ""


async def test_hashed_hosts_have_their_agents(center: RunningCenter, fleet: Any) -> None:
    """C5: one host is one agent's; when it dies its hosts go to others, and no other moves."""
    hands = {name: await fleet(name) for name in ("a", "b", "c")}
    assert (await open_run(center, "r", {"strategy": "hashed", "key": "host"})).status == 200
    hosts = [f"http://127.0.0.{n}/" for n in range(1, 60)]
    await center.put("r", hosts)
    await center.dispatched()
    owner: dict[str, str] = {}
    for name, hand in hands.items():
        for uri in await hand.uris(await hand.lease(want=20)):
            owner[uri] = name
    assert set(owner) == set(hosts)
    assert set(owner.values()) == {"a", "b", "c"}
    await center.put("r", [f"{host}again" for host in hosts])
    await hands["c"].die()
    await until(lambda: _gone(center, "c"))
    moved: dict[str, str] = {}
    async with asyncio.timeout(20):
        while len(moved) < len(hosts):
            for name in ("a", "b"):
                for uri in await hands[name].uris(await hands[name].lease(want=20)):
                    moved[uri.removesuffix("again")] = name
            await asyncio.sleep(0.05)
    stayed = {host: name for host, name in owner.items() if name != "c"}
    assert {host: moved[host] for host in stayed} == stayed


async def _gone(center: RunningCenter, agent: str) -> bool:
    return center.services.roster.given_up(agent)


async def test_release_reaches_the_agents(center: RunningCenter, fleet: Any) -> None:
    """A2, A4: allocate with the settings when the run starts, release when it has ended."""
    a = await fleet("a")
    async with a.hand.caller.socket("a") as socket:
        await until(lambda: _connected(center, "a"))
        assert (await open_run(center, "r", {"strategy": "fixed", "n": 1})).status == 200
        told = await _told(socket, "allocate")
        assert msgspec.json.decode(told.detail)["placement"]["strategy"] == "fixed"
        await center.admin.post("/api/v1/runs/r/finish")
        assert (await _told(socket, "release")).run == "r"
    assert await center.services.store.allocations.open() == []


async def _connected(center: RunningCenter, agent: str) -> bool:
    return agent in center.services.hub.connected


async def _told(socket: Any, name: str) -> Command:
    async with asyncio.timeout(10):
        while True:
            command = msgspec.msgpack.decode(await socket.receive_bytes(), type=Command)
            if command.name == name:
                return command


async def test_a_job_whose_agents_are_missing_could_not_start(
    center: RunningCenter, fleet: Any
) -> None:
    """C4, fault 20: the job's run has ended before it began, and says why."""
    await fleet("a")
    job = {"name": "j", "requests": [f"{SITE}/1"], "placement": {"strategy": "fixed", "n": 2}}
    assert (await center.admin.put("/api/v1/jobs/j", job)).status in {200, 201}
    problem = (await center.admin.post("/api/v1/jobs/j/run")).problem()
    assert problem.code == "not_enough_agents"
    (run,) = await center.services.store.job_runs.of("j", 10)
    assert not run.open
    assert "2 agents are needed and 1 of 1 can be had" in run.outcome
    await fleet("b")
    started = await center.admin.post("/api/v1/jobs/j/run")
    assert started.status < 300, started.content
    newest = (await center.services.store.job_runs.of("j", 1))[0]
    assert sorted(await agents_of(center, newest.run)) == ["a", "b"]


async def test_a_finished_run_that_goes_on_has_its_agents_again(
    center: RunningCenter, fleet: Any
) -> None:
    """C4: released at its end, and the same agents when a person continues it."""
    for name in ("a", "b", "c"):
        await fleet(name)
    await open_run(center, "r", {"strategy": "fixed", "n": 1})
    chosen = await agents_of(center, "r")
    await center.admin.post("/api/v1/runs/r/finish")
    await until(lambda: _released(center))
    assert (await center.admin.post("/api/v1/runs/r/continue")).status == 200
    await center.put("r", [f"{SITE}/more"])
    await until(lambda: _reopened(center))
    assert await agents_of(center, "r") == chosen


async def _released(center: RunningCenter) -> bool:
    return await center.services.store.allocations.open() == []


async def _reopened(center: RunningCenter) -> bool:
    return not await _released(center)
